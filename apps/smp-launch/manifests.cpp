#include "manifests.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "job_shape.h"
#include "smp/plan/errors.h"

namespace smp {
namespace {

constexpr size_t kLongestLabel = 63;                    // of DNS, RFC 1035
constexpr const char* kHostFile = "/etc/mpi/hostfile";  // the MPI operator mounts it there
constexpr const char* kProgram = "smp-launch";          // in the image's PATH

// A text of YAML: what JSON writes is one.
std::string yaml_text(const std::string& text) { return nlohmann::json(text).dump(); }

// A command that arrives as it stands: in a container's words $(NAME) is replaced, and $$ is $.
std::string command_list(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    std::string escaped;
    for (size_t i = 0; i < word.size(); ++i) {
      if (word[i] == '$' && i + 1 < word.size() && (word[i + 1] == '(' || word[i + 1] == '$'))
        escaped.push_back('$');
      escaped.push_back(word[i]);
    }
    text += fmt::format("{}{}", text.empty() ? "" : ", ", yaml_text(escaped));
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
        fmt::format("'{}' is no name for Kubernetes: small letters, digits and '-', a letter first "
                    "(--job-name)",
                    name));
  if (longest.size() > kLongestLabel)
    throw ConfigError(
        fmt::format("'{}' is too long a name: its last pod would be '{}', {} characters of {} at "
                    "most (--job-name)",
                    name, longest, longest.size(), kLongestLabel));
}

std::string gpu_limits(const JobShape& shape, int indent) {
  if (shape.gpus_per_host == 0) return "";
  return fmt::format("{0:{1}}resources:\n{0:{1}}  limits:\n{0:{1}}    nvidia.com/gpu: {2}\n", "",
                     indent, shape.gpus_per_host);
}

}  // namespace

std::string mpijob_manifest(const PreparedJob& job) {
  const JobShape shape = shape_of(job);
  const std::string name = label_of(shape.name);
  check_label(name, fmt::format("{}-worker-{}", name, shape.hosts - 1));
  return fmt::format(
      "# Written by smp-launch --dry-run=mpijob; start it with kubectl create -f. The image needs\n"
      "# sshd, and the same smp-launch, at the same path, in launcher and workers.\n"
      "apiVersion: kubeflow.org/v2beta1\n"
      "kind: MPIJob\n"
      "metadata:\n"
      "  name: {0}\n"
      "spec:\n"
      "  slotsPerWorker: {1}\n"
      "  runPolicy:\n"
      "    backoffLimit: 0\n"
      "    cleanPodPolicy: Running\n"
      "  mpiReplicaSpecs:\n"
      "    Launcher:\n"
      "      replicas: 1\n"
      "      restartPolicy: Never\n"
      "      template:\n"
      "        spec:\n"
      "          containers:\n"
      "            - name: launcher\n"
      "              image: {2}\n"
      "              command: {3}\n"
      "    Worker:\n"
      "      replicas: {4}\n"
      "      restartPolicy: Never\n"
      "      template:\n"
      "        spec:\n"
      "          containers:\n"
      "            - name: worker\n"
      "              image: {2}\n"
      "              command: [\"/usr/sbin/sshd\", \"-De\"]\n"
      "{5}",
      name, shape.ranks_per_host, yaml_text(job.request.image),
      command_list(launch_words(job, kProgram, {"--hostfile", kHostFile})), shape.hosts,
      gpu_limits(shape, 14));
}

}  // namespace smp
