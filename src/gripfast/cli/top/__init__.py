"""`gripfast top`: what is held and waited for, live.

| module | what it does |
|---|---|
| `command.py` | the command; one table, for scripts |
| `session.py` | the loop: keys and signals come in, pictures go out. It never waits for the store |
| `state.py` | what the user looks at, and what each key does to that; pure |
| `picture.py` | from the state to lines; pure |
| `grid.py` | which columns fit, and how wide they are; pure |
| `terminal.py` | the terminal: drawn on, read from, and left as it was |
| `keys.py` | from bytes to keys; pure |

Our own code draws, rather than curses or a library. Curses asks the C library how wide a character is, and stops the
process itself when the terminal says so, behind the back of the code that restores the terminal. Frameworks for whole
applications bring a dozen packages and an event loop. What is needed here is little: to move, to erase, to set a style.
Every terminal of today has the same codes for that.
"""
