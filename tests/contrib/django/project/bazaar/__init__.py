"""A bazaar. Django knows no MySQL driver but mysqlclient; PyMySQL says that it is that."""

import os

if os.environ.get("BAZAAR_HAS_MARIADB"):
    import pymysql

    pymysql.install_as_MySQLdb()
