"""The paper's experiment: reproduced, questioned with controls, told in tables and figures.

``proxmatch.experiments.reproduce.reproduce`` runs it; nothing is imported before it is needed.
"""
