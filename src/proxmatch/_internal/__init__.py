"""What every package may use and no user needs: files, locks, provenance, randomness, colors."""
