"""Asks a fork server for a child and ends as it does; starts in no time, so it imports nothing."""

import _socket
import os
import signal
import sys

if __name__ == "__main__":
    mask = os.umask(0)
    os.umask(mask)
    variables = [name + b"=" + value for name, value in os.environb.items()]
    name = os.path.basename(__file__)
    asked = b"\0".join(
        [
            os.fsencode(os.getcwd()),
            b"%d" % mask,
            b"%d" % len(variables),
            *variables,
            *{"pytest": [b"-m", b"pytest"], "python": [b"python"]}.get(name, []),
            *[os.fsencode(argument) for argument in sys.argv[1:]],
        ]
    )
    server = _socket.socket(_socket.AF_UNIX)
    server.connect(os.path.dirname(__file__) + "/socket")
    server.send(len(asked).to_bytes(8))
    numbers = b"".join([descriptor.to_bytes(4, sys.byteorder) for descriptor in range(3)])
    sent = server.sendmsg([asked], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)])
    while sent < len(asked):
        sent += server.send(asked[sent:])
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: server.send(bytes([number])))
    for descriptor in range(3):
        os.close(descriptor)
    code = int.from_bytes(server.recv(2, _socket.MSG_WAITALL), "big", signed=True)
    if code < 0:
        if -code in (signal.SIGTERM, signal.SIGINT):
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)
