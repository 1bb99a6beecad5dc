#!/usr/bin/env python3
"""Runs the cleanup on a server, or watches a run, and prints what happens.

With --dry-run it shows what would be deleted and which guards would refuse it, and with --approve it does exactly that.
It comes back to the run when the connection is lost. Its exit status is 0 only if the run succeeded.
"""

import argparse
import os
import sys
import time
import uuid

import grpc

from cleanup.v1 import cleanup_pb2 as api
from cleanup.v1 import cleanup_pb2_grpc
from cleanup.v1.guard_pb2 import GuardKind

OPTIONS = [  # A server that vanished is noticed after a minute, and one that came back after two seconds.
    ("grpc.keepalive_time_ms", 30000),
    ("grpc.keepalive_timeout_ms", 30000),
    ("grpc.http2.max_pings_without_data", 0),  # no limit: a client that watches sends nothing else
    ("grpc.max_reconnect_backoff_ms", 2000),
]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--server", default="127.0.0.1:9090", help="the gRPC address of a server, HOST:PORT")
    parser.add_argument("--tls-ca", help="speak TLS, and trust the authorities in this PEM file")
    parser.add_argument("--token", help="the token to send, with --tls-ca only (default $CLEANUPD_TOKEN, which other users cannot see)")
    parser.add_argument("--watch", default="", metavar="RUN", help="watch the run with this id instead of starting one")
    parser.add_argument("--task", action="append", help="run this task; may be repeated (default all)")
    parser.add_argument("--dry-run", action="store_true", help="change nothing, count what would be deleted")
    parser.add_argument("--approve", default="", metavar="RUN", help="do what the dry run with this id found, and accept the guards that it showed")
    parser.add_argument("--patience", type=float, default=60, metavar="SECONDS", help="how long to try to start a run, or to come back to it, after the connection was lost")
    args = parser.parse_args()
    args.token = args.token or os.environ.get("CLEANUPD_TOKEN")
    if args.token and not args.tls_ca:
        parser.error("a token would be sent in plain text: add --tls-ca")
    return args


def connect(args):
    if not args.tls_ca:
        return grpc.insecure_channel(args.server, OPTIONS)
    with open(args.tls_ca, "rb") as pem:
        credentials = grpc.ssl_channel_credentials(pem.read())
    if args.token:
        credentials = grpc.composite_channel_credentials(credentials, grpc.access_token_call_credentials(args.token))
    return grpc.secure_channel(args.server, credentials, OPTIONS)


def shown_guards(service, dry_run):
    """Returns the guards that a dry run showed, with their numbers."""
    run = service.GetRun(api.GetRunRequest(run_id=dry_run)).run
    return [guard for result in run.results for table in result.preview for guard in table.guards]


def events(service, args):
    """Yields the events of the run until it has ended."""
    # The request_id lets the request be repeated until an answer comes, and starts one run.
    request = api.RunCleanupRequest(tasks=args.task, dry_run=args.dry_run, plan=args.approve, request_id=str(uuid.uuid4()))
    if args.approve:
        request.accept_guards.extend(shown_guards(service, args.approve))
    # asks for the events after the last one; None before the first
    at = api.WatchRunRequest(run_id=args.watch) if args.watch else None
    lost = None  # when the connection was lost
    while True:
        stream = service.WatchRun(at) if at else service.RunCleanup(request)
        try:
            for message in stream:
                event, lost = message.event, None
                at = api.WatchRunRequest(run_id=event.run_id, after_sequence=event.sequence, log_generation=event.log_generation)
                yield event
                if event.HasField("run_finished"):
                    return
            sys.exit("the stream ended before the run did")
        except grpc.RpcError as error:
            run = f"run {at.run_id}" if at else "the run"
            if error.code() == grpc.StatusCode.UNAVAILABLE:
                if lost is None:
                    lost = time.monotonic()
                    print(f"The connection is lost, trying for {args.patience:g} s to come back to {run}.", file=sys.stderr)
                if time.monotonic() - lost > args.patience:
                    print(f"{run.capitalize()} may go on, see --watch.", file=sys.stderr)
                    raise
                time.sleep(1)
            elif at and error.code() == grpc.StatusCode.DATA_LOSS:
                print("The database lost events of the run, watching it again from the first.", file=sys.stderr)
                at = api.WatchRunRequest(run_id=at.run_id)
            else:
                raise


def show(event):
    """Prints an event. What may hold text of the database is quoted, since that may hold anything, such as commands to a terminal."""
    if event.HasField("run_started"):
        print(f"Run {event.run_id} began.")
    elif event.HasField("task_progress"):
        p = event.task_progress
        print(f"{p.task}: {p.rows_deleted + p.rows_updated} rows so far, now {p.object!r}")
    elif event.HasField("task_finished"):
        r = event.task_finished.result
        print(f"{r.task}: {api.TaskState.Name(r.state)}, {r.rows_deleted} rows deleted, {r.rows_updated} updated, {r.rows_retained} left")
        for p in r.preview:  # of a dry run
            print(f"  {api.PreviewAction.Name(p.action)} {p.table!r}: {p.rows} rows, {p.tables} tables")
            for g in p.guards:
                print(f"  {GuardKind.Name(g.guard)} refuses this for {g.table!r}: the number is {g.number}, the limit is {g.limit}")
    elif event.HasField("log") and event.log.level != api.LOG_LEVEL_INFO:
        print(f"{event.log.task}: {api.LogLevel.Name(event.log.level)} {event.log.message!r}")
    elif event.HasField("run_finished"):
        print(f"Run {event.run_id} ended: {api.RunState.Name(event.run_finished.run.state)}.")


def main():
    args = arguments()
    sys.stdout.reconfigure(line_buffering=True)  # also where it is no terminal
    with connect(args) as channel:
        try:
            for event in events(cleanup_pb2_grpc.CleanupServiceStub(channel), args):
                show(event)
        except grpc.RpcError as error:
            sys.exit(f"{error.code().name}: {error.details()!r}")
    run = event.run_finished.run
    if run.reason == api.REFUSAL_REASON_GUARD:
        print("A guard refused it: look at a --dry-run, and --approve that.", file=sys.stderr)
    if run.state != api.RUN_STATE_SUCCEEDED:
        sys.exit(f"run {run.id} is {api.RunState.Name(run.state)}: {run.error!r}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("interrupted: the run goes on")
