#!/usr/bin/env python3
"""Shows that the property tests can fail: each rule that keeps memory from being shared too early
is taken out of a copy of the allocator's source, and the tests must notice.

Usage: mutation_check.py --source DIR --compiler CXX [--launcher CCACHE] [--only NAME]
           --objects O... --libraries A... [--options=-l...]

Only the changed file is compiled, or the sources that have the rule from a changed header; what
comes of it is linked in front of the library that was built, so that its objects take the place of
the originals.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile


@dataclasses.dataclass(frozen=True)
class Mutation:
    name: str
    path: str
    before: str
    after: str
    sources: tuple = ()  # of a header: those that are compiled with it
    tests: str = "All/ListTest.*"
    more: tuple = ()  # further pairs of before and after, in the same file


# Where it is asked whose a free piece is.
HOLDER_SOURCES = ("runs/run_table.cc", "runs/run_report.cc", "pool/shared_tiers.cc")

MUTATIONS = (
    Mutation("no ticket check", "stream/ticket_set.h",
             "    return has_more() ? kNobody : unpack(head_).stream;\n",
             "    return kAnybody;\n", HOLDER_SOURCES),
    Mutation("several tickets are nobody's no more", "stream/ticket_set.h",
             "    return has_more() ? kNobody : unpack(head_).stream;\n",
             "    return unpack(head_).stream;\n", HOLDER_SOURCES),
    Mutation("a fifth ticket is lost", "stream/ticket_set.cc",
             "  fence.sequence = streams.make_fence();\n", ""),
    Mutation("a fence is always complete", "stream/stream_table.cc",
             "    if (oldest != 0 && oldest <= fence.sequence) return false;\n", ""),
    Mutation("a fence forgets the stream that made it one", "stream/ticket_set.cc",
             "  fence.groups |= Fence::group_of(ticket.stream);\n", ""),
    Mutation("a fence forgets the streams before", "stream/ticket_set.cc",
             "  for (const Ticket& covered : tickets) "
             "fence.groups |= Fence::group_of(covered.stream);\n", ""),
    Mutation("joining loses whose the neighbour's fence is", "stream/ticket_set.cc",
             "  all.fence.groups |= others.fence.groups;\n", ""),
    Mutation("joining loses the tickets of the one before", "runs/run_table.cc",
             "    run.tickets.add(runs_[before].tickets, streams_);\n", ""),
    Mutation("joining with the one before loses the run's own tickets", "runs/run_table.cc",
             "    runs_[before].tickets = run.tickets;\n", ""),
    Mutation("joining loses the tickets of the one after", "runs/run_table.cc",
             "    runs_[kept].tickets.add(runs_[after].tickets, streams_);\n", ""),
    Mutation("a rest that is cut off has no tickets", "runs/run_table.cc",
             "  tickets = run.tickets;\n", "  tickets.clear();\n"),
    Mutation("what is left of a run that is cut has no tickets", "runs/run_table.cc",
             "  run.tickets.prune(streams_);\n  insert_free(",
             "  run.tickets.clear();\n  insert_free("),
    Mutation("slots of other streams are free at once", "pool/shared_tiers.cc",
             "    if (tickets[i].stream != owner && !streams_.is_complete(tickets[i])) return true;\n",
             ""),
    Mutation("a chunk goes back without its tickets", "pool/shared_tiers.cc",
             "  runs_.put(chunk.run, chunk.tickets);\n", "  runs_.put(chunk.run, TicketSet());\n"),
    Mutation("uses by other streams are forgotten", "pool/deallocate.cc",
             "  for (const ExtraUse& use : uses->second) {\n",
             "  for (const ExtraUse& use : std::vector<ExtraUse>()) {\n"),
    Mutation("a cache for all streams", "pool/allocate.cc",
             "small_caches_[stream]->take(bin", "small_caches_[0]->take(bin"),
    Mutation("nobody asks whether work is complete", "stream/epoch_events.cc",
             "      if (!done.ok() || !done.value()) break;\n", ""),
    Mutation("an ended stream's index is used again at once", "stream/stream_table.cc",
             "  if (slot.id == 0 || !slot.closed.empty() || slot.open_first_use != 0) return;\n",
             "  if (slot.id == 0) return;\n"),
    Mutation("an event by a handle that is another stream's", "stream/epoch_events.cc",
             "  if (!id.ok() || id.value() != end.stream_id) return false;\n", ""),
    Mutation("an event covers what was freed while it was recorded", "stream/stream_table.cc",
             "    ++slot.open;\n    slot.open_first_use = 0;\n  }\n"
             "  return EpochEnd{stream, slot.open - 1,",
             "  }\n  return EpochEnd{stream, slot.open,", "All/ListTest.*/VmmOthers",
             (("  slots_[end.stream]->recorded = end.epoch;\n",
               "  slots_[end.stream]->recorded = end.epoch;\n"
               "  slots_[end.stream]->open = end.epoch + 1;\n"
               "  slots_[end.stream]->open_first_use = 0;\n"),)),
    Mutation("an epoch without an event counts as complete", "stream/stream_table.cc",
             "  if (!end.is_recorded) return;\n",
             "  if (!end.is_recorded) {\n    slots_[end.stream]->recorded = end.epoch;\n"
             "    return complete({end.stream, end.epoch});\n  }\n"),
    Mutation("an epoch without an event gets none any more", "stream/stream_table.cc",
             "  return slot.open_first_use != 0 || slot.recorded + 1 < slot.open;\n",
             "  return slot.open_first_use != 0;\n"),
    Mutation("a fence overlooks closed epochs", "stream/stream_table.cc",
             "slot.closed.empty() ? slot.open_first_use : slot.closed.front().first_use;",
             "slot.open_first_use;"),
    Mutation("a stream ends without an event", "stream/stream_table.cc",
             "  return last;\n", "  return std::nullopt;\n"),
    Mutation("a destroyed stream's cache is its successor's", "pool/deallocate.cc",
             "let_go(former);", "streams_.release(former);"),
    Mutation("trimming takes what is in use", "pool/upkeep.cc",
             " || run.holder != internal::kAnybody) continue;", ") continue;"),
)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", required=True, type=pathlib.Path)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--launcher", default="")
    parser.add_argument("--only", default="")
    parser.add_argument("--objects", nargs="+", required=True)
    parser.add_argument("--libraries", nargs="+", required=True)
    parser.add_argument("--options", action="append", default=[])
    return parser.parse_args()


def build(mutation, arguments, folder):
    """The property tests with `mutation` in them; the mutation that is None changes nothing."""
    objects = list(arguments.objects)
    if mutation is not None:
        allocator = arguments.source / "allocator"
        text = (allocator / mutation.path).read_text(encoding="utf-8")
        for before, after in ((mutation.before, mutation.after), *mutation.more):
            if text.count(before) != 1:
                raise SystemExit(f"{mutation.name}: {mutation.path} does not have its text once")
            text = text.replace(before, after)
        # In a folder of the same name, so that a header is found there before the original.
        mutant = folder / mutation.path
        mutant.parent.mkdir()
        mutant.write_text(text, encoding="utf-8")
        launcher = [arguments.launcher] if arguments.launcher else []
        for source in [allocator / path for path in mutation.sources] or [mutant]:
            built = folder / f"{source.stem}.o"
            subprocess.run([*launcher, arguments.compiler, "-std=c++20", "-O1", "-w", "-fPIC",
                            "-I", folder, "-I", allocator, "-I", allocator / "include",
                            "-c", source, "-o", built], check=True)
            objects.insert(0, built)
    program = folder / "tests"
    subprocess.run([arguments.compiler, *objects, *arguments.libraries, "-o", program,
                    "-pthread", *arguments.options], check=True)
    return program


def run(mutation, arguments):
    """Whether the tests failed, and what they said."""
    with tempfile.TemporaryDirectory(prefix="gpupool-mutation-") as name:
        program = build(mutation, arguments, pathlib.Path(name))
        tests = "All/ListTest.*" if mutation is None else mutation.tests
        environment = dict(os.environ, GPUPOOL_TEST_SHRINK="0", GPUPOOL_TEST_SEED="1")
        if mutation is None:
            environment["GPUPOOL_TEST_LISTS"] = "3"
        done = subprocess.run([program, f"--gtest_filter={tests}", "--gtest_fail_fast"],
                              env=environment, check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=300)
    reasons = [line for line in done.stdout.splitlines()
               if line.startswith(("after operation", "at the end", "gpupool: "))]
    return done.returncode != 0, reasons[0] if reasons else done.stdout[-400:]


def main():
    arguments = parse_arguments()
    failed, said = run(None, arguments)
    if failed:
        print(f"the tests fail without any mutation: {said}")
        return 1
    chosen = [mutation for mutation in MUTATIONS if arguments.only in mutation.name]
    unnoticed = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as workers:
        results = workers.map(lambda mutation: run(mutation, arguments), chosen)
        for mutation, (is_noticed, said) in zip(chosen, results):
            print(f"{'noticed' if is_noticed else 'NOT NOTICED'}: {mutation.name}")
            if is_noticed:
                print(f"    {said}")
            unnoticed += not is_noticed
    print(f"{len(chosen)} mutations, {unnoticed} not noticed")
    return 1 if unnoticed else 0


if __name__ == "__main__":
    sys.exit(main())
