"""``python -m proxmatch`` is ``proxmatch``."""

from proxmatch.cli import main

if __name__ == "__main__":
    main()
