#include "smp/launcher/file_limit.h"

#include <mutex>

namespace smp {
namespace {

std::mutex mutex;
int raised = 0;  // so many live
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

}  // namespace smp
