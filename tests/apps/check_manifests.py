#!/usr/bin/env python3
"""The manifests of tests/golden/dry-run against the rules that a cluster would hold them to: the schemas that
JobSet (jobset.x-k8s.io/v1alpha2), LeaderWorkerSet (leaderworkerset.x-k8s.io/v1), the MPI operator
(kubeflow.org/v2beta1) and Kubeflow's trainer (trainer.kubeflow.org/v1alpha1) publish, and what their webhooks and Kubernetes itself check beyond them.

  check_manifests.py GOLDEN_DIR            returns 77 where there is no PyYAML
"""
import pathlib
import re
import sys

try:
    import yaml
except ImportError:
    print("skipped: there is no PyYAML (apt-get install python3-yaml)")
    sys.exit(77)

LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")  # RFC 1035, as services and pods' hosts need it
LONGEST_LABEL = 63
RULE_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")  # of JobSet's failure policies
FAILURE_REASONS = ("BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded",
                   "PodFailurePolicy")  # of a Job
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # of a variable

text, number = str, int


def words(value):
    assert isinstance(value, list) and all(isinstance(word, str) for word in value), f"{value}: a list of words"


def one_of(*values):
    def check(value):
        assert value in values, f"{value}: one of {values}"
    return check


def at_least(least):
    def check(value):
        assert isinstance(value, int) and value >= least, f"{value}: at least {least}"
    return check


def label(value):
    assert isinstance(value, str) and LABEL.fullmatch(value) and len(value) <= LONGEST_LABEL, f"{value}: no label"


def list_of(rule, by=None):
    def check(value):
        assert isinstance(value, list) and value, f"{value}: a list"
        for item in value:
            hold(rule, item)
        if by:
            names = [item[by] for item in value]
            assert len(set(names)) == len(names), f"{names}: one is there twice"
    return check


def variable_name(value):
    assert isinstance(value, str) and NAME.fullmatch(value), f"{value}: no variable"


def rule_name(value):
    assert RULE_NAME.fullmatch(value) and len(value) <= 128, f"{value}: no name of a rule"


def exit_codes(value):
    assert value and len(value) <= 255 and value == sorted(set(value)), f"{value}: ascending codes"
    assert all(isinstance(code, int) and 0 < code <= 255 for code in value), f"{value}: 0 is no failure"


def hold(rule, value, path=""):
    """A rule is a type, a function, or a dict of keys; those with '!' must be there, others may."""
    if isinstance(rule, type):
        assert isinstance(value, rule) and not (rule is int and isinstance(value, bool)), f"{path}: {value}"
    elif callable(rule):
        rule(value)
    else:
        assert isinstance(value, dict), f"{path}: {value}: keys are wanted"
        known = {key.rstrip("!"): key for key in rule}
        for key in value:
            assert key in known, f"{path}.{key}: no such key"
        for key, spelt in known.items():
            assert key in value or not spelt.endswith("!"), f"{path}.{key} is missing"
            if key in value:
                hold(rule[spelt], value[key], f"{path}.{key}")


RESOURCES = {"limits": lambda value: hold(at_least(1), value.get("nvidia.com/gpu", 1))}
MOUNT = {"name!": label, "mountPath!": text, "readOnly": bool}
CONTAINER = {"name!": label, "image!": text, "command": words, "args": words, "resources": RESOURCES,
             "env": list_of({"name!": variable_name, "value": text}, "name"), "volumeMounts": list_of(MOUNT)}
VOLUME = {"name!": label, "secret": {"secretName!": text, "defaultMode": number},
          "emptyDir": {"medium": one_of("", "Memory")}}
POD = {"restartPolicy": one_of("Never", "OnFailure"), "terminationGracePeriodSeconds": at_least(0),
       "containers!": list_of(CONTAINER, "name"), "volumes": list_of(VOLUME, "name")}
CODES = {"containerName": label, "operator!": one_of("In", "NotIn"), "values!": exit_codes}
POD_FAILURE_POLICY = {"rules!": list_of({
    "action!": one_of("FailJob", "FailIndex", "Ignore", "Count"), "onExitCodes": CODES,
    "onPodConditions": list_of({"type!": text, "status!": one_of("True", "False", "Unknown")}, "type")})}
JOB = {"backoffLimit": at_least(0), "podFailurePolicy": POD_FAILURE_POLICY, "completionMode": one_of("Indexed"), "completions": at_least(1),
       "parallelism": at_least(1), "template!": {"spec!": {**POD, "restartPolicy!": one_of("Never", "OnFailure")}}}
HEAD = {"apiVersion!": text, "kind!": text, "metadata!": {"name!": label}}

FAILURE_POLICY = {"maxRestarts": at_least(0), "rules": list_of({
    "name!": rule_name, "action!": one_of("FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"),
    "onJobFailureReasons": list_of(one_of(*FAILURE_REASONS)), "targetReplicatedJobs": words}, "name")}
JOBSET = {**HEAD, "spec!": {
    "failurePolicy": FAILURE_POLICY,
    "network": {"enableDNSHostnames": bool, "subdomain": label, "publishNotReadyAddresses": bool},
    "replicatedJobs!": list_of({"name!": label, "replicas": at_least(1), "template!": {"spec!": JOB}}, "name")}}
LWS = {**HEAD, "spec!": {
    "replicas": at_least(0), "startupPolicy": one_of("LeaderCreated", "LeaderReady"),
    "networkConfig": {"subdomainPolicy!": one_of("Shared", "UniquePerReplica")},
    "leaderWorkerTemplate!": {
        "size": at_least(1),
        "restartPolicy": one_of("RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"),
        # Its pods are those of StatefulSets, which take no other restart policy.
        "workerTemplate!": {"spec!": {**POD, "restartPolicy": one_of("Always")}}}}}
REPLICAS = {"replicas!": at_least(1), "restartPolicy": one_of("Never", "OnFailure"), "template!": {"spec!": POD}}
MPIJOB = {**HEAD, "spec!": {
    "launcherCreationPolicy": one_of("AtStartup", "WaitForWorkersReady"), "slotsPerWorker": at_least(1), "sshAuthMountPath": text, "mpiImplementation": one_of("OpenMPI", "Intel", "MPICH"),
    "runPolicy": {"cleanPodPolicy": one_of("None", "Running", "All"), "backoffLimit": at_least(0)},
    "mpiReplicaSpecs!": {"Launcher!": {**REPLICAS, "replicas!": one_of(1)}, "Worker": REPLICAS}}}
TRAINJOB = {**HEAD, "spec!": {
    "runtimeRef!": {"name!": text, "apiGroup": text, "kind": one_of("ClusterTrainingRuntime", "TrainingRuntime")},
    "trainer": {"image": text, "command": words, "args": words, "numNodes": at_least(0),
                "numProcPerNode": at_least(1), "resourcesPerNode": RESOURCES}}}
# A runtime's image is its TrainJob's.
RUNTIME_JOB = {**JOB, "template!": {"spec!": {**JOB["template!"]["spec!"], "containers!": list_of(
    {"name!": label, "volumeMounts": list_of(MOUNT)}, "name")}}}
RUNTIME = {**HEAD, "metadata!": {"name!": label, "labels!": {"trainer.kubeflow.org/framework!": text}}, "spec!": {
    "mlPolicy": {"numNodes": at_least(1), "torch": {}},
    "template!": {"spec!": {"failurePolicy": FAILURE_POLICY, "replicatedJobs!": list_of({
        "name!": label, "replicas!": one_of(1), "template!": {
            "metadata!": {"labels!": {"trainer.kubeflow.org/trainjob-ancestor-step!": one_of("trainer")}},
            "spec!": RUNTIME_JOB}}, "name")}}}}


def jobset_beyond(job):
    for replicated in job["spec"]["replicatedJobs"]:
        spec = replicated["template"]["spec"]
        # The webhook's longest pod: name-job-index-index and a random tail of five.
        last = f"{job['metadata']['name']}-{replicated['name']}-{replicated['replicas'] - 1}-{spec['completions'] - 1}"
        label(last + "-abcde")
        assert spec["completions"] == spec["parallelism"], "all hosts at once"
        pod_failures_beyond(spec)
        mounts_have_volumes(spec["template"]["spec"]["containers"], spec["template"]["spec"].get("volumes", []))


def pod_failures_beyond(job):
    rules = job.get("podFailurePolicy", {"rules": []})["rules"]
    assert not rules or job["template"]["spec"]["restartPolicy"] == "Never", "podFailurePolicy: pods are never restarted"
    assert len(rules) <= 20, "podFailurePolicy: 20 rules at most"
    names = [container["name"] for container in job["template"]["spec"]["containers"]]
    for rule in rules:
        assert ("onExitCodes" in rule) != ("onPodConditions" in rule), f"{rule}: codes or conditions"
        assert rule.get("onExitCodes", {}).get("containerName", names[0]) in names, f"{rule}: no such container"


def lws_beyond(job):
    template = job["spec"]["leaderWorkerTemplate"]
    label(f"{job['metadata']['name']}-{job['spec']['replicas'] - 1}-{template['size'] - 1}")
    pod = template["workerTemplate"]["spec"]
    mounts_have_volumes(pod["containers"], pod.get("volumes", []))


def mpijob_beyond(job):
    workers = job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"]
    label(f"{job['metadata']['name']}-worker-{workers - 1}")
    for replicas in job["spec"]["mpiReplicaSpecs"].values():
        pod = replicas["template"]["spec"]
        mounts_have_volumes(pod["containers"], pod.get("volumes", []))


def trainjob_beyond(job):
    trainer = job["spec"]["trainer"]
    label(f"{job['metadata']['name']}-node-0-{trainer['numNodes'] - 1}-abcde")
    assert len(trainer["image"]) <= 500 and len(trainer["command"]) <= 128, "the schema's limits"


def runtime_beyond(runtime):
    """Its Job gets completions and completion mode from the trainer; the webhook wants the ranks in a container "node"."""
    for replicated in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
        spec = replicated["template"]["spec"]
        pod = spec["template"]["spec"]
        assert [container["name"] for container in pod["containers"]] == ["node"], "no container 'node'"
        assert spec["backoffLimit"] == 0 and pod["restartPolicy"] == "Never", "no pod is made again alone"
        pod_failures_beyond(spec)
        mounts_have_volumes(pod["containers"], pod["volumes"])


def mounts_have_volumes(containers, volumes):
    names = {volume["name"] for volume in volumes}
    for container in containers:
        for mount in container.get("volumeMounts", []):
            assert mount["name"] in names, f"{mount['name']}: no such volume"


KINDS = {("jobset.x-k8s.io/v1alpha2", "JobSet"): (JOBSET, jobset_beyond),
         ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): (LWS, lws_beyond),
         ("kubeflow.org/v2beta1", "MPIJob"): (MPIJOB, mpijob_beyond),
         ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"): (RUNTIME, runtime_beyond),
         ("trainer.kubeflow.org/v1alpha1", "TrainJob"): (TRAINJOB, trainjob_beyond)}


def named_runtime_is_there(objects):
    """A TrainJob names the runtime that stands before it."""
    runtimes = [one["metadata"]["name"] for one in objects if one["kind"] == "TrainingRuntime"]
    for job in (one for one in objects if one["kind"] == "TrainJob"):
        assert job["spec"]["runtimeRef"]["kind"] == "TrainingRuntime", "its own runtime"
        assert [job["spec"]["runtimeRef"]["name"]] == runtimes, f"{runtimes}: not the runtime that it names"


files = sorted(pathlib.Path(sys.argv[1]).glob("*.yaml"))
failed = 0 if files else 1
for file in files:
    try:
        objects = list(yaml.safe_load_all(file.read_text()))
        for job in objects:
            rule, beyond = KINDS[job["apiVersion"], job["kind"]]
            hold(rule, job)
            beyond(job)
        named_runtime_is_there(objects)
        print(f"ok    {file.name}: {', '.join(job['kind'] for job in objects)}")
    except (AssertionError, KeyError) as error:
        print(f"FAIL  {file.name}: {error}")
        failed += 1
sys.exit(1 if failed else 0)
