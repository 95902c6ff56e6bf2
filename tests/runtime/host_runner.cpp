#include "host_runner.h"

template class smp::cuda::GpuFunctions<smp::test::HostRunner>;
