"""The classic design of a flash sale, to compare with: four round trips and one consumer.

It is the design of many courses in its best reasonable form: no lock that the unique key makes
needless, one connection pool, and a pipeline if two commands need no answer in between.
"""
