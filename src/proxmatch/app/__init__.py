"""``proxmatch app``: a page in the browser to try denoisers on pictures, on this machine alone."""
