"""MariaDB and MySQL, over the client/server protocol."""
