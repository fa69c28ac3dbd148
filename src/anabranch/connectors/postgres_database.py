"""The database behind a Postgres sink or source: its address, its tables' names, and what its errors mean."""

from __future__ import annotations

import hashlib
import importlib.util
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, quote_plus, unquote

from anabranch.connectors.postgres_types import LONGEST_NAME, Column, check_names
from anabranch.core.names import quoted
from anabranch.core.secrets import hide, keep_hidden
from anabranch.errors import ProjectError, SetupError

if TYPE_CHECKING:
    import psycopg

#: What a connection has unless the address says otherwise: a server that is gone is noticed, a lock is not waited for
#: without end.
_USUAL = {
    "connect_timeout": "10",
    "application_name": "anabranch",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}
LOCK_SECONDS = 30

#: Only ever strengthens what the server was told: a commit that was answered must not be lost.
_SESSION = f"""
    SELECT set_config('lock_timeout', '{LOCK_SECONDS}s', false),
           set_config('synchronous_commit', CASE current_setting('synchronous_commit')
                      WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)"""


def check_driver() -> None:
    """Refuse to go on without psycopg."""
    if importlib.util.find_spec("psycopg") is None:
        raise SetupError(
            "POSTGRES_DRIVER_MISSING",
            "Postgres is reached with the driver psycopg, which is not installed",
            hint="pip install 'anabranch[postgres]'",
        )


def parameters(url: str) -> dict[str, Any]:
    """What an address says, for the driver; its password is remembered as a secret.

    >>> found = parameters("postgresql+psycopg://ann:tulips-4@db/shop")
    >>> found["host"], found["dbname"], hide("tulips-4")
    ('db', 'shop', '***')
    """
    import psycopg
    from psycopg.conninfo import conninfo_to_dict

    plain = re.sub(r"^(jdbc:)?postgres(ql)?(\+\w+)?://", "postgresql://", url)
    # Before the driver looks at it: what it says of an address that it cannot read quotes half of it.
    for found in re.finditer(r"://[^/@\s:]*:([^@\s]*)@|password=([^&\s]+)", plain):
        _remember(found[1] or found[2] or "")
    try:
        said = conninfo_to_dict(plain)
    except psycopg.Error:
        raise ProjectError(
            "POSTGRES_URL_INVALID",
            "the address of the database cannot be read",
            hint="write postgresql://user:${env:PASSWORD}@host:5432/database; in a password @ is %40, / is %2F",
        ) from None
    _remember(str(said.get("password") or ""))
    return {**_USUAL, **said}


def _remember(password: str) -> None:
    if password:
        for form in {password, unquote(password), quote(password, safe=""), quote_plus(password)}:
            keep_hidden(form)


def connect(url: str) -> psycopg.Connection[Any]:
    """A connection, in a transaction as soon as it is used."""
    import psycopg

    found = psycopg.connect(**parameters(url))
    try:
        found.execute(_SESSION)
        found.commit()
    except BaseException:
        found.close()
        raise
    return found


_PART = r'(?:"(?:[^"]|"")+"|[^".]+)'


@dataclass(frozen=True, slots=True)
class TableName:
    """A table, in a schema or in the one that the connection works in."""

    name: str
    schema: str | None = None

    @property
    def sql(self) -> str:
        """As SQL has it.

        >>> TableName("my.orders", "sales").sql
        '"sales"."my.orders"'
        """
        return f"{quoted(self.schema)}.{quoted(self.name)}" if self.schema else quoted(self.name)

    @classmethod
    def parse(cls, text: str) -> TableName:
        """A name as users write it; parts with other characters than letters and digits are quoted.

        >>> TableName.parse("orders"), TableName.parse("main.sales.orders")
        (TableName(name='orders', schema=None), TableName(name='orders', schema='sales'))
        """
        if not re.fullmatch(rf"{_PART}(\.{_PART}){{0,2}}", text):
            raise ProjectError(
                "POSTGRES_TABLE_INVALID",
                f"{text} is no name of a table",
                hint='write schema.table; names with other characters in double quotes: "my schema"."my.table"',
            )
        parts = [p[1:-1].replace('""', '"') if p.startswith('"') else p for p in re.findall(_PART, text)]
        check_names(parts)
        return cls(parts[-1], parts[-2] if len(parts) > 1 else None)

    def beside(self, suffix: str) -> TableName:
        """A table beside this one; a name that would be too long is cut and made its own again.

        >>> TableName("orders", "sales").beside("__changes").sql
        '"sales"."orders__changes"'
        """
        name = self.name + suffix
        if len(name.encode()) > LONGEST_NAME:
            own = hashlib.blake2b(self.name.encode(), digest_size=4).hexdigest()
            room = LONGEST_NAME - len(suffix) - len(own) - 1
            name = f"{self.name.encode()[:room].decode(errors='ignore')}_{own}{suffix}"
        return TableName(name, self.schema)

    def another(self, name: str) -> TableName:
        """A table of another name in the same schema."""
        return TableName(name, self.schema)


_COLUMNS = """
    SELECT a.attname, CASE t.typtype WHEN 'e' THEN 'enum' ELSE format_type(a.atttypid, a.atttypmod) END,
           a.attnotnull AND NOT a.atthasdef AND a.attidentity = '', a.attgenerated <> '' OR a.attidentity = 'a'
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""


def columns_of(connection: psycopg.Connection[Any], table: TableName) -> list[Column] | None:
    """The columns of a table, None when it is not there."""
    if not connection.execute("SELECT to_regclass(%s) IS NOT NULL", [table.sql]).fetchone()[0]:  # type: ignore[index]
        return None
    return [Column(*row) for row in connection.execute(_COLUMNS, [table.sql])]


def is_passing(error: psycopg.Error) -> bool:
    """Whether the same may go well another time: a connection that broke, a deadlock, a lock, a full server."""
    state = error.sqlstate
    return state is None or state.startswith(("08", "40", "53", "57", "58")) or state == "55P03"


def is_refused_row(error: psycopg.Error) -> bool:
    """Whether the database would not have a row: a constraint, or a value that its type cannot have."""
    return (error.sqlstate or "").startswith(("22", "23"))


def in_words(error: BaseException) -> str:
    """An error of the driver's in one line, without secrets."""
    return hide(" ".join(str(error).split()))
