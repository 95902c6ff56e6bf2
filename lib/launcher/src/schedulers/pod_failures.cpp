#include "pod_failures.h"

#include <fmt/format.h>

#include "smp/plan/base/exit_code.h"

namespace smp::schedulers {

int pod_restarts(const request::PreparedJob& job) {
  return cluster_restarts(job.request) ? job.request.watch.restarts.most : 0;
}

// A preempted job that resumes from its last checkpoint restarts without limit: smp-launch ended
// with 75, or Kubernetes has marked the pod. All other failures count. A lost node counts too:
// smp-launch ends with 125 in seconds, minutes before Kubernetes marks its pod.
std::string jobset_failures(const request::PreparedJob& job, int indent) {
  std::string text = fmt::format(
      "{0:{1}}failurePolicy:\n"
      "{0:{1}}  maxRestarts: {2}\n",
      "", indent, pod_restarts(job));
  if (job.request.resume == request::kResumeIfAny)
    text += fmt::format(
        "{0:{1}}  rules:\n"
        "{0:{1}}    - name: preempted\n"
        "{0:{1}}      action: RestartJobSetAndIgnoreMaxRestarts\n"
        "{0:{1}}      onJobFailureReasons: [PodFailurePolicy]\n",
        "", indent);
  return text;
}

std::string job_failures(const request::PreparedJob& job, const std::string& container,
                         int indent) {
  std::string text = fmt::format("{0:{1}}backoffLimit: 0\n", "", indent);
  if (job.request.resume == request::kResumeIfAny)
    text += fmt::format(
        "{0:{1}}podFailurePolicy:\n"
        "{0:{1}}  rules:\n"
        "{0:{1}}    - action: FailJob\n"
        "{0:{1}}      onExitCodes:\n"
        "{0:{1}}        containerName: {2}\n"
        "{0:{1}}        operator: In\n"
        "{0:{1}}        values: [{3}]\n"
        "{0:{1}}    - action: FailJob\n"
        "{0:{1}}      onPodConditions:\n"
        "{0:{1}}        - type: DisruptionTarget\n"
        "{0:{1}}          status: \"True\"\n",
        "", indent, container, static_cast<int>(ExitCode::kCheckpointedOnRequest));
  return text;
}

}  // namespace smp::schedulers
