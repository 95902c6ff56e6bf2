"""What a file of Chrome's trace event format must hold for Perfetto's JSON importer
(src/trace_processor/importers/json) to take all of it, in order: the rules of the format ("Trace Event Format",
Google, 2016) that smp's files use."""
import collections
import json

PHASES = "MXsfC"


def problems_of(text):
    """What is wrong, in words; [] = nothing."""
    try:
        trace = json.loads(text)
        events = trace["traceEvents"]
    except (ValueError, KeyError, TypeError) as error:
        return [f"no trace: {error!r}"]
    wrong, slices, points = [], collections.defaultdict(list), []
    flows = collections.defaultdict(list)
    processes, threads = set(), set()
    for event in events:
        phase, where = event.get("ph"), (event.get("pid"), event.get("tid"))
        if phase not in PHASES or not event.get("name") or not isinstance(where[0], int):
            wrong.append(f"no event that is known: {event}")
            continue
        if phase == "M" and event["name"] == "process_name":
            processes.add(where[0])
        elif phase == "M" and event["name"] == "thread_name":
            threads.add(where)
        elif phase == "X":
            # Nanoseconds as whole numbers: doubles of microseconds would not add up.
            begin, size = round(event["ts"] * 1000), round(event["dur"] * 1000)
            if begin < 0 or size < 0:
                wrong.append(f"a slice of negative time: {event}")
            slices[where].append((begin, -(begin + size), event["name"]))
        elif phase in "sf":
            flows[event["id"], event["cat"], event["name"]].append(phase)
            points.append((where, round(event["ts"] * 1000)))
            if phase == "f" and event.get("bp") != "e":
                wrong.append(f"an arrow that does not end in the slice around it: {event}")
    for where, all_of in slices.items():
        if where[0] not in processes or where not in threads:
            wrong.append(f"process or thread without a name: {where}")
        around = []
        for begin, minus_end, name in sorted(all_of, key=lambda one: one[:2]):
            while around and around[-1][0] <= begin:
                around.pop()
            if around and -minus_end > around[-1][0]:
                wrong.append(f"{name} at {begin} ns crosses {around[-1][1]} on {where}")
            around.append((-minus_end, name))
    wrong += [f"an arrow without two ends: {flow}" for flow, ends in flows.items() if sorted(ends) != ["f", "s"]]
    for where, at in points:
        if not any(begin <= at <= -minus_end for begin, minus_end, _ in slices[where]):
            wrong.append(f"an arrow at {at} ns in no slice of {where}")
    return wrong
