"""Stories as pictures: text for a terminal, SVG, and HTML that needs nothing else.

Theory of operation. Time goes down: one moment is one row, one client or node one column, and what happened stands in
words at the right of its row. So a picture is no wider than its lanes and as long as its story, which is how a page and
a terminal can be read. `layout` knows what is to be seen, whatever it is drawn with.
"""
