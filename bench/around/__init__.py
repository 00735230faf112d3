"""What the course mentions around the six steps, measured: guards, ids, caches and sorted sets.

``script/race NAME`` runs each as an experiment of the lab.
"""
