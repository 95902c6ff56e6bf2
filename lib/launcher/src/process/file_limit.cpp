#include "smp/launcher/process/file_limit.h"

#include <fcntl.h>

#include <algorithm>
#include <mutex>

#include "smp/plan/system/file_descriptor.h"

namespace smp::process {
namespace {

constexpr rlim_t kReservedFiles = 4096;  // enough for 2,000 ranks; the table takes 32 KiB

std::mutex mutex;
int raised = 0;  // number of living objects
rlimit limit_before;

}  // namespace

RaisedFileLimit::RaisedFileLimit() {
  const std::lock_guard lock(mutex);
  if (raised++ > 0) return;
  getrlimit(RLIMIT_NOFILE, &limit_before);
  rlimit all = limit_before;
  all.rlim_cur = all.rlim_max;
  setrlimit(RLIMIT_NOFILE, &all);
}

RaisedFileLimit::~RaisedFileLimit() {
  const std::lock_guard lock(mutex);
  if (--raised == 0) setrlimit(RLIMIT_NOFILE, &limit_before);
}

rlimit RaisedFileLimit::before() {
  const std::lock_guard lock(mutex);
  if (raised == 0) getrlimit(RLIMIT_NOFILE, &limit_before);
  return limit_before;
}

void reserve_file_table() {
  const RaisedFileLimit limit;
  rlimit now;
  getrlimit(RLIMIT_NOFILE, &now);
  const auto last = std::min<rlim_t>(now.rlim_cur, kReservedFiles) - 1;
  const system::FileDescriptor highest(fcntl(0, F_DUPFD_CLOEXEC, static_cast<int>(last)));
}

}  // namespace smp::process
