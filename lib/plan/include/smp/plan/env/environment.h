#pragma once

// Names of the environment variables through which smp-launch speaks to a rank. The first block is
// what torchrun gives; the second is our own.
namespace smp::env {

inline constexpr const char* kRank = "RANK";
inline constexpr const char* kLocalRank = "LOCAL_RANK";
inline constexpr const char* kWorldSize = "WORLD_SIZE";
inline constexpr const char* kLocalWorldSize = "LOCAL_WORLD_SIZE";
inline constexpr const char* kGroupRank = "GROUP_RANK";             // index of the host
inline constexpr const char* kGroupWorldSize = "GROUP_WORLD_SIZE";  // number of hosts
inline constexpr const char* kNodeRank = "NODE_RANK";               // the same, by another name
inline constexpr const char* kRoleName = "ROLE_NAME";
inline constexpr const char* kRoleRank = "ROLE_RANK";
inline constexpr const char* kRoleWorldSize = "ROLE_WORLD_SIZE";
inline constexpr const char* kMasterAddr = "MASTER_ADDR";
inline constexpr const char* kMasterPort = "MASTER_PORT";
inline constexpr const char* kRunId = "TORCHELASTIC_RUN_ID";
inline constexpr const char* kRestartCount = "TORCHELASTIC_RESTART_COUNT";
inline constexpr const char* kMaxRestarts = "TORCHELASTIC_MAX_RESTARTS";
inline constexpr const char* kTorchErrorFile = "TORCHELASTIC_ERROR_FILE";

inline constexpr const char* kPlan = "SMP_PLAN";       // path of the plan file
inline constexpr const char* kRunDir = "SMP_RUN_DIR";  // folder of this run
inline constexpr const char* kJobId = "SMP_JOB_ID";    // public name of the job, 16 hex digits
inline constexpr const char* kJobKey = "SMP_JOB_KEY";  // secret of the job, 64 hex digits
// The names of the job's hosts in the order of NODE_RANK, "a,b".
inline constexpr const char* kHosts = "SMP_HOSTS";
// The place of a plan's rank on the axes of its mesh, from 0.
inline constexpr const char* kPipelineRank = "SMP_PIPELINE_RANK";
inline constexpr const char* kTensorRank = "SMP_TENSOR_RANK";
inline constexpr const char* kContextRank = "SMP_CONTEXT_RANK";
inline constexpr const char* kShardRank = "SMP_SHARD_RANK";
inline constexpr const char* kReplicaRank = "SMP_REPLICA_RANK";
inline constexpr const char* kErrorFile = "SMP_ERROR_FILE";  // where a rank leaves its last words
// Between hosts: the libfabric provider to use, by default the first that works; and the network
// whose address a host uses, "10.0.0.0/16", by default the one that reaches MASTER_ADDR.
inline constexpr const char* kFabricProvider = "SMP_FABRIC_PROVIDER";
inline constexpr const char* kFabricSubnet = "SMP_FABRIC_SUBNET";
// How long messages between hosts travel, "tagged" or by "write"; by default the one that is faster
// there.
inline constexpr const char* kFabricProtocol = "SMP_FABRIC_PROTOCOL";
// How hosts exchange parts, "mesh", "ring" or "doubling"; by default chosen by the network's costs:
// seconds of a hop, a message, a byte and a byte to the next host, "6e-06,2e-06,8e-10,8e-10".
inline constexpr const char* kFabricExchange = "SMP_FABRIC_EXCHANGE";
inline constexpr const char* kFabricCost = "SMP_FABRIC_COST";
// The host's name for ranks that share a host, for tests that make several hosts of one.
inline constexpr const char* kHostIdentity = "SMP_HOST_IDENTITY";
inline constexpr const char* kCommTimeout = "SMP_COMM_TIMEOUT_S";  // seconds, of every collective
// Threads of a rank that compute long sums and copies of collectives; by default one, and on a GPU
// the rank's share of the CPUs.
inline constexpr const char* kCommThreads = "SMP_COMM_THREADS";
// Set for a rank whose lines go to a terminal of this width: the rank may rewrite its last line.
inline constexpr const char* kConsoleColumns = "SMP_CONSOLE_COLUMNS";
// Resume from a checkpoint in SMP_RUN_DIR: "latest", or the number of a step.
inline constexpr const char* kResume = "SMP_RESUME";
// Set: build only the rank's share, print what it holds compared with the plan, and end.
inline constexpr const char* kBuildOnly = "SMP_BUILD_ONLY";
// Set, and not 0: no program measures this host.
inline constexpr const char* kNoMeasure = "SMP_NO_MEASURE";
// The library of all fp32 products on CPUs, "onednn" or "torch"; by default the faster one here.
inline constexpr const char* kCpuProducts = "SMP_CPU_PRODUCTS";
// The libsmp_cuda.so to load for cluster.device: cuda, instead of the one beside the program.
inline constexpr const char* kCudaModule = "SMP_CUDA_MODULE";
// Whether the smallest copies to and from a GPU use GDRCopy: "auto" (the default), "off", "on".
inline constexpr const char* kGdrCopy = "SMP_GDRCOPY";
// Where a rank posts its progress (smp/plan/runinfo/progress_page.h): a file to map, and the offset
// in it, "/proc/123/fd/9:4096".
inline constexpr const char* kProgressPage = "SMP_PROGRESS_PAGE";
inline constexpr const char* kFault = "SMP_FAULT";  // a failure on purpose, for tests of failures

}  // namespace smp::env
