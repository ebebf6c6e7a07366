"""Stands for ``cloudflared access ssh --hostname HOST:PORT``: carries stdin and stdout there."""

from __future__ import annotations

import os
import socket
import sys
import threading


def main() -> None:
    host, _, port = sys.argv[sys.argv.index("--hostname") + 1].rpartition(":")
    with socket.create_connection((host, int(port)), 10.0) as link:
        link.settimeout(None)

        def up() -> None:
            while data := os.read(0, 65536):
                link.sendall(data)
            link.shutdown(socket.SHUT_WR)

        threading.Thread(target=up, daemon=True).start()
        while data := link.recv(65536):
            while data:
                data = data[os.write(1, data) :]
    os._exit(0)


if __name__ == "__main__":
    main()
