#include "segment/mapping.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "segment/memory_limit.h"

namespace smp::segment {
namespace {

[[noreturn]] void throw_errno(const char* what) {
  throw std::system_error(errno, std::generic_category(), what);
}

#ifdef MADV_POPULATE_WRITE
constexpr int kPopulateWrite = MADV_POPULATE_WRITE;
#else
constexpr int kPopulateWrite = 23;  // Linux 5.14; the headers of older C libraries lack it
#endif

}  // namespace

Mapping::Mapping(int fd, size_t bytes, int flags) : fd_(fd), bytes_(bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, fd, 0);
  if (p == MAP_FAILED) {
    const int error = errno;
    if (fd >= 0) close(fd);
    errno = error;
    throw_errno("cannot map the shared memory of the job");
  }
  data_ = static_cast<std::byte*>(p);
}

Mapping Mapping::anonymous(size_t bytes) { return Mapping(-1, bytes, MAP_SHARED | MAP_ANONYMOUS); }

Mapping Mapping::memfd(size_t bytes) {
  const int fd = memfd_create("smp-job", MFD_CLOEXEC);
  if (fd < 0) throw_errno("cannot create the shared memory of the job");
  if (ftruncate(fd, off_t(bytes)) != 0) {
    const int error = errno;
    close(fd);
    errno = error;
    throw_errno("cannot size the shared memory of the job");
  }
  return Mapping(fd, bytes, MAP_SHARED);
}

Mapping Mapping::of_fd(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) throw_errno("cannot read the size of the job's shared memory");
  return Mapping(fd, size_t(status.st_size), MAP_SHARED);
}

Mapping::Mapping(Mapping&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(other.bytes_) {}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
  close_fd();
}

void Mapping::close_fd() {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

void populate(std::byte* data, size_t bytes) {
  // Beyond the limit of a control group the kernel would kill the process instead of an error.
  if (const auto why = no_room_for(int64_t(bytes)))
    throw std::system_error(ENOMEM, std::generic_category(),
                            "no memory for the shared segment of a group: " + *why);
  if (madvise(data, bytes, kPopulateWrite) != 0 && errno != EINVAL)
    throw_errno("no memory for the shared segment of a group");
}

void map_pages(std::byte* data, size_t bytes) { madvise(data, bytes, kPopulateWrite); }

void leave_out_of_dumps(std::byte* data, size_t bytes) {
  madvise(data, bytes, MADV_DONTDUMP);  // a failure is harmless
}

void release(std::byte* data, size_t bytes) {
  if (madvise(data, bytes, MADV_REMOVE) != 0) memset(data, 0, bytes);
}

}  // namespace smp::segment
