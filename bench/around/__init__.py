"""What the course mentions around the six steps: guards, ids, encodings, caches and sorted sets.

``script/race NAME`` measures each as an experiment of the lab.
"""
