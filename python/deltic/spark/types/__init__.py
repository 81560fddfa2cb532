"""Types and schemas between Spark, Delta and Arrow."""
