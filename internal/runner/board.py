"""TensorBoard that answers only those who know the secret: python board.py LOGS PORT."""

import hmac
import os
import sys

del sys.path[0]  # the folder of this file

from tensorboard import program  # noqa: E402

WANTED = ("token " + os.environ.pop("BERTH_SERVICE_SECRET")).encode()


def server(app, flags):
    def guarded(environ, start_response):
        given = environ.pop("HTTP_AUTHORIZATION", "").encode()
        if not hmac.compare_digest(given, WANTED):
            start_response("401 Unauthorized", [("Content-Type", "text/plain")])
            return [b"open this page through the Berth server\n"]
        return app(environ, start_response)

    return program.WerkzeugServer(guarded, flags)


def main():
    board = program.TensorBoard(server_class=server)
    # Its faster reader of files is a process that listens on a port of its own, for everybody.
    board.configure(argv=["tensorboard", "--logdir", sys.argv[1], "--host", "127.0.0.1", "--port", sys.argv[2], "--load_fast", "false"])
    return board.main()


if __name__ == "__main__":
    sys.exit(main())
