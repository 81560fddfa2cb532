"""Spark's filters as text: quoting, and what is left to Spark."""

from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from pyspark.sql import datasource as ds

from deltic.spark.filter import to_sql

A = ("a",)


@pytest.mark.parametrize(
    ("pushed", "text"),
    [
        (ds.EqualTo(A, 1), "`a` = 1"),
        (ds.EqualTo(("a", "b c", "d`e"), -1), "`a`.`b c`.`d``e` = -1"),
        (ds.EqualNullSafe(A, None), "`a` <=> NULL"),
        (ds.EqualTo(A, "it's"), "`a` = 'it''s'"),
        (ds.GreaterThan(A, 1.5), "`a` > 1.5"),
        (ds.GreaterThanOrEqual(A, Decimal("1E+3")), "`a` >= 1000"),
        (ds.EqualTo(A, Decimal("0." + "3" * 27)), "`a` = 0." + "3" * 27),
        (ds.EqualTo(A, Decimal("0." + "3" * 28)), None),
        (ds.In(A, (Decimal(1), Decimal("9" * 38))), None),
        (ds.LessThan(A, date(2013, 7, 4)), "`a` < DATE '2013-07-04'"),
        (
            ds.LessThanOrEqual(A, datetime(2013, 7, 4, 1, tzinfo=timezone(timedelta(hours=2)))),
            "`a` <= TIMESTAMP '2013-07-03 23:00:00.000000Z'",
        ),
        (ds.EqualTo(A, datetime(2013, 7, 4, 0, 0, 0, 5)), "`a` = TIMESTAMP_NTZ '2013-07-04 00:00:00.000005'"),
        (ds.EqualTo(A, b"\x00\xff"), "`a` = X'00ff'"),
        (ds.EqualTo(A, True), "`a` = TRUE"),
        (ds.In(A, (1, None, 3)), "`a` IN (1, NULL, 3)"),
        (ds.IsNull(A), "`a` IS NULL"),
        (ds.IsNotNull(A), "`a` IS NOT NULL"),
        (ds.Not(ds.EqualTo(A, 1)), "NOT (`a` = 1)"),
        (ds.StringStartsWith(A, "50%_!'"), "`a` LIKE '50!%!_!!''%' ESCAPE '!'"),
        (ds.StringEndsWith(A, "x"), None),
        (ds.StringContains(A, "x"), None),
        (ds.EqualTo(A, [1, 2]), None),
        (ds.EqualTo(A, float("nan")), None),
        (ds.In(A, (1.0, float("inf"))), None),
        (ds.In(A, ()), None),
        (ds.Not(ds.StringContains(A, "x")), None),
    ],
    ids=str,
)
def test_text(pushed: ds.Filter, text: str | None) -> None:
    assert to_sql(pushed) == text
