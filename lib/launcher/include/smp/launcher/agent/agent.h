#pragma once

#include "smp/plan/system/file_descriptor.h"

namespace smp::agent {

// smp-launch --agent, which smp-launch starts on every host of --hosts. The agent talks over its
// standard input and output, starts the ranks of its host, and stays until none is left. When the
// connection ends, or the heartbeats stop, it kills everything that it has started. It runs as two
// processes that watch each other (run_with_watchdog). Returns the exit code.
int run_agent();

// The same, over a connection (see Rendezvous).
int run_agent(system::FileDescriptor connection);

}  // namespace smp::agent
