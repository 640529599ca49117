"""The paper's experiment: reproduced, checked with controls, shown in tables and figures.

``proxmatch.experiments.reproduction.reproduce`` runs it; nothing is imported before it is needed.
"""
