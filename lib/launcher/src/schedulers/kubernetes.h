#pragma once

// What manifests for Kubernetes and the pods that they make agree on.
namespace smp::schedulers {

inline constexpr const char* kMpiHostFile = "/etc/mpi/hostfile";  // mounted by the MPI operator
inline constexpr int kPodPort =
    29400;  // where the first pod waits, unless its operator says another

}  // namespace smp::schedulers
