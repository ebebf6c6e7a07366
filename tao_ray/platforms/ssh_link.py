"""One SSH link to a machine, shared by all who use that machine in this process.

A link is a few connections, made when needed: servers allow a limited number of sessions on each
(``MaxSessions``), and the limit shows only when it is met. paramiko waits without limit in many
places; here every wait has a deadline, enforced by closing the connection, which ends all waits
on it. Who was reading a stream over that connection makes it anew and resumes.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import paramiko

from tao_ray.platforms.base import LinkError
from tao_ray.platforms.host_keys import HostKeys
from tao_ray.platforms.ssh_config import Route, SshTarget, find_route

_MOST_CHANNELS = 8  # sshd's MaxSessions is 10 unless someone lowered it
_DEAD = (paramiko.SSHException, OSError, EOFError)
# What paramiko logs about lost connections is in our errors; without a handler it goes to stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class LoginError(LinkError):
    """The machine answers but does not let us in."""


@dataclass(frozen=True)
class SshTimings:
    """Seconds. connect: for a connection to stand. keepalive: between two questions whether the
    other side lives, dead_after: without an answer the connection is dropped. backoff: the
    longest pause between two attempts to connect."""

    connect: float = 20.0
    keepalive: float = 5.0
    dead_after: float = 15.0
    backoff: float = 15.0


class _Connection:
    """An open connection and the threads that watch it: one closes it when a wait on it takes
    too long, the other when the far side does not answer."""

    def __init__(
        self,
        client: paramiko.SSHClient,
        proxy: subprocess.Popen[bytes] | None,
        timings: SshTimings,
    ):
        transport = client.get_transport()
        assert transport is not None
        self.transport = transport
        self.channels = 0
        self.most = _MOST_CHANNELS
        self.served = False  # has it ever opened a channel
        self._client = client
        self._proxy = proxy
        self._timings = timings
        self._deadlines: dict[object, float] = {}
        for watch in (self._guard, self._ask):
            threading.Thread(target=watch, daemon=True).start()

    @contextlib.contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Close the connection if the block takes longer: that ends every wait on it."""
        block = object()
        self._deadlines[block] = time.monotonic() + seconds
        reason: Exception | None = None
        try:
            yield
        except _DEAD as error:
            reason = error
            raise
        finally:
            if self._deadlines.pop(block, None) is None:
                raise EOFError(f"no answer within {seconds:.3g} s") from reason

    def close(self) -> None:
        self._client.close()
        if self._proxy is not None:
            self._proxy.terminate()
            self._proxy.wait()

    def _guard(self) -> None:
        while self.transport.is_active():
            time.sleep(0.1)
            now = time.monotonic()
            late = [block for block, end in list(self._deadlines.items()) if end < now]
            if late:
                for block in late:
                    self._deadlines.pop(block, None)
                self.transport.close()

    def _ask(self) -> None:
        while self.transport.is_active():
            time.sleep(self._timings.keepalive)
            with contextlib.suppress(*_DEAD), self.within(self._timings.dead_after):
                self.transport.global_request("keepalive@openssh.com", wait=True)


class SshLink:
    """Hands out channels. Thread-safe; connects when first used, and again when that was lost."""

    def __init__(self, name: str, target: SshTarget, host_keys: HostKeys, timings: SshTimings):
        self._name = name
        self._target = target
        self._host_keys = host_keys
        self._timings = timings
        self._lock = threading.Lock()  # of what follows
        self._connections: list[_Connection] = []
        self._connecting = threading.Lock()
        self._failures = 0
        self._not_before = 0.0

    @contextlib.contextmanager
    def channel(
        self, command: str, timeout: float, *, whole: bool = False
    ) -> Iterator[paramiko.Channel]:
        """A channel on which `command` has been started within `timeout` seconds.

        whole: the block must end within them, too. Every failure of paramiko's in the block is
        raised as LinkError.
        """
        deadline = time.monotonic() + timeout
        nothing = contextlib.nullcontext()
        with contextlib.ExitStack() as stack:
            while True:
                connection = self._reserve(deadline)
                try:
                    with connection.within(deadline - time.monotonic()):
                        channel = connection.transport.open_session(timeout=timeout)
                except paramiko.ChannelException:  # the server allows no more on this connection
                    with self._lock:
                        connection.channels -= 1
                        connection.most = connection.channels
                    if connection.most == 0:
                        self._drop(connection)
                        if not connection.served:
                            raise self._down("the server allows no session") from None
                        # Commands whose channels were closed still run there and count.
                    continue
                except _DEAD as error:
                    self._drop(connection)
                    raise self._down(error) from error
                connection.served = True
                break
            stack.callback(self._give_back, connection, channel)
            try:
                with connection.within(deadline - time.monotonic()):
                    channel.exec_command(command)
                with connection.within(deadline - time.monotonic()) if whole else nothing:
                    yield channel
            except _DEAD as error:
                self._drop(connection)
                raise self._down(error) from error

    def close(self) -> None:
        """Close the connections. The link may be used again."""
        with self._lock:
            connections, self._connections = self._connections, []
        for connection in connections:
            connection.close()

    def _reserve(self, deadline: float) -> _Connection:
        """A connection with room for a channel, which is then taken."""
        connection = self._with_room()
        if connection is not None:
            return connection
        if not self._connecting.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise self._down("another attempt to connect is still going on")
        try:
            connection = self._with_room()
            if connection is None:
                self._connect(deadline)
                connection = self._with_room()
        finally:
            self._connecting.release()
        if connection is None:
            raise self._down("lost at once")
        return connection

    def _with_room(self) -> _Connection | None:
        with self._lock:
            gone = [c for c in self._connections if not c.transport.is_active()]
            self._connections = [c for c in self._connections if c not in gone]
            found = next((c for c in self._connections if c.channels < c.most), None)
            if found is not None:
                found.channels += 1
        for connection in gone:
            connection.close()
        return found

    def _give_back(self, connection: _Connection, channel: paramiko.Channel) -> None:
        with self._lock:
            connection.channels -= 1
        with contextlib.suppress(*_DEAD), connection.within(self._timings.dead_after):
            channel.close()

    def _drop(self, connection: _Connection) -> None:
        with self._lock:
            if connection in self._connections:
                self._connections.remove(connection)
        connection.close()

    def _connect(self, deadline: float) -> None:
        pause = self._not_before - time.monotonic()
        if pause > 0:
            time.sleep(max(0.0, min(pause, deadline - time.monotonic())))
        limit = min(self._timings.connect, deadline - time.monotonic())
        if limit <= 0:
            raise self._down("no attempt to connect before the deadline")
        try:
            connection = self._open(limit)
        except BaseException:
            self._not_before = time.monotonic() + min(
                0.25 * 2.0 ** min(self._failures, 10), self._timings.backoff
            )
            self._failures += 1
            raise
        self._failures = 0
        with self._lock:
            self._connections.append(connection)

    def _open(self, limit: float) -> _Connection:
        route = find_route(self._target, limit)
        proxy = sock = None
        client = paramiko.SSHClient()
        pinned = self._host_keys.pinned(self._name)
        if pinned is not None:
            shown = route.host if route.port == 22 else f"[{route.host}]:{route.port}"
            client.get_host_keys().add(shown, pinned.get_name(), pinned)
        client.set_missing_host_key_policy(_Pin(self._host_keys, self._name))
        try:
            if route.proxy_command is not None:
                proxy, sock = _proxy(route.proxy_command)
            else:
                sock = socket.create_connection((route.host, route.port), limit)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.connect(
                route.host,
                route.port,
                route.user,
                key_filename=list(route.identity_files),  # type: ignore[arg-type]
                sock=sock,
                timeout=limit,
                banner_timeout=limit,
                auth_timeout=limit,
                channel_timeout=limit,
                allow_agent=False,
                look_for_keys=not route.identity_files,
            )
        except BaseException as error:
            client.close()
            if proxy is not None:
                proxy.kill()
                proxy.wait()
            if isinstance(error, paramiko.BadHostKeyException):
                raise self._host_keys.changed(self._name) from None
            if isinstance(error, paramiko.AuthenticationException):
                raise self._not_let_in(route, str(error)) from error
            if isinstance(error, _DEAD):
                raise self._down(error) from error
            raise
        return _Connection(client, proxy, self._timings)

    def _down(self, reason: BaseException | str) -> LinkError:
        text = str(reason) or type(reason).__name__
        return LinkError(
            f"no SSH link to {self._target.address}: {text}",
            where=self._name,
            remedy="see whether the machine is up and its SSH server can be reached from here",
        )

    def _not_let_in(self, route: Route, reason: str) -> LoginError:
        keys = ", ".join(route.identity_files) or "the default keys in ~/.ssh"
        return LoginError(
            f"the SSH server of {self._target.address} refuses the login ({reason}); "
            f"user {route.user or os.environ.get('USER', 'of this process')}, {keys}",
            where=self._name,
            remedy="set user and identity_file to a key without passphrase whose public half is in "
            "authorized_keys there (agents are not asked)",
        )


class _Pin(paramiko.MissingHostKeyPolicy):
    def __init__(self, host_keys: HostKeys, name: str):
        self._host_keys = host_keys
        self._name = name

    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        del client, hostname
        self._host_keys.check(self._name, key)


def _proxy(command: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """The proxy command, and a real socket to it: paramiko's own wrapper of such commands never
    reads their stderr and does not notice their end."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}"],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    return process, ours
