"""Makes tables of Parquet files and of Iceberg tables."""
