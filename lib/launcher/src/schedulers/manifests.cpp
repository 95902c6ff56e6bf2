#include "manifests.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>

#include "kubernetes.h"
#include "pod_failures.h"
#include "smp/launcher/request/job_shape.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/text/json.h"

namespace smp::schedulers {
namespace {

constexpr size_t kLongestLabel = 63;                   // of DNS, RFC 1035
constexpr const char* kKeyFolder = "/etc/smp-launch";  // the key's secret is mounted there
constexpr const char* kKeyName = "key";
constexpr const char* kConnectTimeoutOfPods = "10m";    // images are fetched meanwhile
constexpr const char* kProgram = "smp-launch";          // in the image's PATH
constexpr std::chrono::seconds kGraceOfKubernetes{30};  // that a pod has by itself
// Time for smp-launch after its ranks have ended: it reports hung processes after 10 s.
constexpr std::chrono::seconds kForLastWords{15};
// The number of a pod in its job: of an indexed job, and of a LeaderWorkerSet.
constexpr const char* kJobNumber = "$(JOB_COMPLETION_INDEX)";
constexpr const char* kGroupNumber = "$(LWS_WORKER_INDEX)";

// A string of YAML; every JSON string is one.
std::string yaml_text(const std::string& text) { return text::Json(text).dump(); }

// A container's command. Kubernetes replaces $(NAME) and $$ in it, as `ours` uses. The user's words
// are escaped, so that they arrive unchanged.
std::string command_list(const std::vector<std::string>& ours, const request::PreparedJob& job) {
  std::string text;
  for (const std::string& word : ours)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", yaml_text(word));
  for (const std::string& word : passed_on_words(job)) {
    std::string escaped;
    for (size_t i = 0; i < word.size(); ++i) {
      if (word[i] == '$' && i + 1 < word.size() && (word[i + 1] == '(' || word[i + 1] == '$'))
        escaped.push_back('$');
      escaped.push_back(word[i]);
    }
    text += fmt::format(", {}", yaml_text(escaped));
  }
  return fmt::format("[{}]", text);
}

// A name that Kubernetes takes: small letters, digits and '-'.
std::string label_of(const std::string& name) {
  std::string label;
  for (const char c : name) {
    const bool upper = c >= 'A' && c <= 'Z';
    label.push_back(upper ? static_cast<char>(c - 'A' + 'a') : c == '_' || c == '.' ? '-' : c);
  }
  return label;
}

// `longest`: the name with what the operator puts behind it for its last pod.
void check_label(const std::string& name, const std::string& longest) {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool plain = !name.empty() && is_letter(name.front()) && name.back() != '-' &&
                     std::all_of(name.begin(), name.end(),
                                 [&](char c) { return is_letter(c) || is_digit(c) || c == '-'; });
  if (!plain)
    throw ConfigError(
        fmt::format("'{}' is not a valid name for Kubernetes: expected small letters, digits and "
                    "'-', beginning with a letter (--job-name)",
                    name));
  if (longest.size() > kLongestLabel)
    throw ConfigError(
        fmt::format("name '{}' is too long: the name of the last pod would be '{}', {} characters "
                    "of at most {} (--job-name)",
                    name, longest, longest.size(), kLongestLabel));
}

std::string gpu_limits(const request::JobShape& shape, int indent) {
  if (shape.gpus_per_host == 0) return "";
  return fmt::format("{0:{1}}resources:\n{0:{1}}  limits:\n{0:{1}}    nvidia.com/gpu: {2}\n", "",
                     indent, shape.gpus_per_host);
}

// The time between SIGTERM to a pod and its kill, from --grace and --checkpoint-grace. Empty if the
// default of Kubernetes is enough.
std::string grace_of_pod(const request::PreparedJob& job, int indent) {
  const job::WatchRules& rules = job.request.watch.rules;
  std::chrono::milliseconds time = rules.grace;
  if (job.plan && rules.checkpoint_signals.count(SIGTERM) != 0) {
    if (!rules.checkpoint_grace)
      throw ConfigError(
          "--checkpoint-signal TERM: Kubernetes kills a pod some time after SIGTERM: give the time "
          "limit of a checkpoint with --checkpoint-grace");
    time += *rules.checkpoint_grace;
  }
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(time) + kForLastWords;
  if (seconds <= kGraceOfKubernetes) return "";
  return fmt::format("{0:{1}}terminationGracePeriodSeconds: {2}\n", "", indent, seconds.count());
}

// The command of each pod: a rendezvous of all pods at the first one.
std::string command_in_pod(const request::PreparedJob& job, const request::JobShape& shape,
                           const std::string& number, const std::string& first) {
  std::vector<std::string> words = {kProgram,
                                    "--nnodes",
                                    std::to_string(shape.hosts),
                                    "--node-rank",
                                    number,
                                    "--rendezvous",
                                    fmt::format("{}:{}", first, kPodPort),
                                    "--key-file",
                                    fmt::format("{}/{}", kKeyFolder, kKeyName)};
  const auto& said = job.request.said;
  if (std::none_of(said.begin(), said.end(), [](const request::SaidOption& one) {
        return one.name == "--connect-timeout";
      })) {
    words.emplace_back("--connect-timeout");
    words.emplace_back(kConnectTimeoutOfPods);
  }
  if (!job.plan) {
    words.emplace_back("-n");
    words.push_back(std::to_string(job.world_size));
  }
  return command_list(words, job);
}

// Mounts /dev/shm. A container has 64 MiB of it by default, which is too little for ranks.
std::string shared_memory_mount(int indent) {
  return fmt::format(
      "{0:{1}}- name: shm\n"
      "{0:{1}}  mountPath: /dev/shm\n",
      "", indent);
}

std::string shared_memory(int indent) {
  return fmt::format(
      "{0:{1}}- name: shm\n"
      "{0:{1}}  emptyDir:\n"
      "{0:{1}}    medium: Memory\n",
      "", indent);
}

// The mounts of a pod: the key of the rendezvous, and /dev/shm.
std::string mounts(int indent) {
  return fmt::format(
      "{0:{1}}volumeMounts:\n"
      "{0:{1}}  - name: key\n"
      "{0:{1}}    mountPath: {2}\n"
      "{0:{1}}    readOnly: true\n"
      "{3}",
      "", indent, kKeyFolder, shared_memory_mount(indent + 2));
}

std::string volumes(const std::string& name, int indent) {
  return fmt::format(
      "{0:{1}}volumes:\n"
      "{0:{1}}  - name: key\n"
      "{0:{1}}    secret:\n"
      "{0:{1}}      secretName: {2}-key\n"
      "{0:{1}}      defaultMode: 256\n"
      "{3}",
      "", indent, name, shared_memory(indent + 2));
}

std::string head(const std::string& form, const std::string& name, const std::string& remark = "") {
  return fmt::format(
      "# Written by smp-launch --dry-run={0}; start it with kubectl create -f, after\n"
      "#   kubectl create secret generic {1}-key --from-literal=key=$(openssl rand -hex 32)\n{2}",
      form, name, remark);
}

}  // namespace

std::string jobset_manifest(const request::PreparedJob& job) {
  const request::JobShape shape = shape_of(job);
  const std::string name = label_of(shape.name);
  check_label(name, fmt::format("{}-host-0-{}-abcde", name, shape.hosts - 1));
  return head("jobset", name) +
         fmt::format(
             "apiVersion: jobset.x-k8s.io/v1alpha2\n"
             "kind: JobSet\n"
             "metadata:\n"
             "  name: {0}\n"
             "spec:\n"
             "{8}"
             "  network:\n"
             "    enableDNSHostnames: true\n"
             "    publishNotReadyAddresses: true\n"
             "  replicatedJobs:\n"
             "    - name: host\n"
             "      replicas: 1\n"
             "      template:\n"
             "        spec:\n"
             "{9}"
             "          completionMode: Indexed\n"
             "          completions: {1}\n"
             "          parallelism: {1}\n"
             "          template:\n"
             "            spec:\n"
             "              restartPolicy: Never\n"
             "{7}"
             "              containers:\n"
             "                - name: ranks\n"
             "                  image: {2}\n"
             "                  command: {3}\n"
             "{4}{5}{6}",
             name, shape.hosts, yaml_text(job.request.image),
             command_in_pod(job, shape, kJobNumber, name + "-host-0-0." + name),
             gpu_limits(shape, 18), mounts(18), volumes(name, 14), grace_of_pod(job, 14),
             jobset_failures(job, 2), job_failures(job, "ranks", 10));
}

// The manifest has a TrainingRuntime of its own. The default one starts failed pods again one by
// one, six times, and a TrainJob cannot change that.
std::string trainjob_manifest(const request::PreparedJob& job) {
  const request::JobShape shape = shape_of(job);
  const std::string name = label_of(shape.name);
  check_label(name, fmt::format("{}-node-0-{}-abcde", name, shape.hosts - 1));
  std::string resources = gpu_limits(shape, 4);
  if (!resources.empty()) resources.replace(4, 10, "resourcesPerNode:");
  return head(
             "trainjob", name,
             "# kubectl delete -f deletes both objects, so that a later job does not find the old\n"
             "# runtime.\n") +
         fmt::format(
             "apiVersion: trainer.kubeflow.org/v1alpha1\n"
             "kind: TrainingRuntime\n"
             "metadata:\n"
             "  name: {0}\n"
             "  labels:\n"
             "    trainer.kubeflow.org/framework: torch\n"
             "spec:\n"
             "  mlPolicy:\n"
             "    numNodes: {1}\n"
             "    torch: {{}}\n"
             "  template:\n"
             "    spec:\n"
             "{2}"
             "      replicatedJobs:\n"
             "        - name: node\n"
             "          replicas: 1\n"
             "          template:\n"
             "            metadata:\n"
             "              labels:\n"
             "                trainer.kubeflow.org/trainjob-ancestor-step: trainer\n"
             "            spec:\n"
             "{3}"
             "              template:\n"
             "                spec:\n"
             "                  restartPolicy: Never\n"
             "{4}"
             "                  containers:\n"
             "                    - name: node\n"
             "{5}{6}",
             name, shape.hosts, jobset_failures(job, 6), job_failures(job, "node", 14),
             grace_of_pod(job, 18), mounts(22), volumes(name, 18)) +
         fmt::format(
             "---\n"
             "apiVersion: trainer.kubeflow.org/v1alpha1\n"
             "kind: TrainJob\n"
             "metadata:\n"
             "  name: {0}\n"
             "spec:\n"
             "  runtimeRef:\n"
             "    apiGroup: trainer.kubeflow.org\n"
             "    kind: TrainingRuntime\n"
             "    name: {0}\n"
             "  trainer:\n"
             "    image: {1}\n"
             "    command: {2}\n"
             "    numNodes: {3}\n"
             "    numProcPerNode: {4}\n"
             "{5}",
             name, yaml_text(job.request.image),
             command_in_pod(job, shape, kJobNumber, name + "-node-0-0." + name), shape.hosts,
             shape.ranks_per_host, resources);
}

std::string lws_manifest(const request::PreparedJob& job) {
  const request::JobShape shape = shape_of(job);
  const std::string name = label_of(shape.name);
  check_label(name, fmt::format("{}-0-{}", name, shape.hosts - 1));
  return head("lws", name) +
         fmt::format(
             "# Its pods restart whenever they end, after success too: delete the LeaderWorkerSet\n"
             "# when the job is done.\n"
             "apiVersion: leaderworkerset.x-k8s.io/v1\n"
             "kind: LeaderWorkerSet\n"
             "metadata:\n"
             "  name: {0}\n"
             "spec:\n"
             "  replicas: 1\n"
             "  startupPolicy: LeaderCreated\n"
             "  leaderWorkerTemplate:\n"
             "    size: {1}\n"
             "    restartPolicy: RecreateGroupOnPodRestart\n"
             "    workerTemplate:\n"
             "      spec:\n"
             "{7}"
             "        containers:\n"
             "          - name: ranks\n"
             "            image: {2}\n"
             "            command: {3}\n"
             "{4}{5}{6}",
             name, shape.hosts, yaml_text(job.request.image),
             command_in_pod(job, shape, kGroupNumber, "$(LWS_LEADER_ADDRESS)"),
             gpu_limits(shape, 12), mounts(12), volumes(name, 8), grace_of_pod(job, 8));
}

std::string mpijob_manifest(const request::PreparedJob& job) {
  const request::JobShape shape = shape_of(job);
  const std::string name = label_of(shape.name);
  check_label(name, fmt::format("{}-worker-{}", name, shape.hosts - 1));
  return fmt::format(
      "# Written by smp-launch --dry-run=mpijob; start it with kubectl create -f. The image needs\n"
      "# sshd, and the same smp-launch at the same path in launcher and workers.\n"
      "apiVersion: kubeflow.org/v2beta1\n"
      "kind: MPIJob\n"
      "metadata:\n"
      "  name: {0}\n"
      "spec:\n"
      "  slotsPerWorker: {1}\n"
      "  launcherCreationPolicy: WaitForWorkersReady\n"
      "  runPolicy:\n"
      "    backoffLimit: {7}\n"
      "    cleanPodPolicy: Running\n"
      "  mpiReplicaSpecs:\n"
      "    Launcher:\n"
      "      replicas: 1\n"
      "      restartPolicy: Never\n"
      "      template:\n"
      "        spec:\n"
      "{6}"
      "          containers:\n"
      "            - name: launcher\n"
      "              image: {2}\n"
      "              command: {3}\n"
      "    Worker:\n"
      "      replicas: {4}\n"
      "      restartPolicy: Never\n"
      "      template:\n"
      "        spec:\n"
      "{6}"
      "          containers:\n"
      "            - name: worker\n"
      "              image: {2}\n"
      "              command: [\"/usr/sbin/sshd\", \"-De\"]\n"
      "{5}"
      "              volumeMounts:\n"
      "{8}"
      "          volumes:\n"
      "{9}",
      name, shape.ranks_per_host, yaml_text(job.request.image),
      command_list({kProgram, "--hostfile", kMpiHostFile}, job), shape.hosts, gpu_limits(shape, 14),
      grace_of_pod(job, 10), pod_restarts(job), shared_memory_mount(16), shared_memory(12));
}

}  // namespace smp::schedulers
