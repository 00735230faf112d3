"""The classic design of a flash sale, to compare with: four round trips and one consumer.

As it is told in many courses, in its best reasonable form: no lock that the unique key makes
needless, one connection pool, a pipeline where two commands need no answer in between.
"""
