#include <dlfcn.h>
#include <unistd.h>

#include <cstring>

// A file system that stands still for 3 s whenever something is removed from a folder "errors", or
// a file "slow.txt" is opened: for a program that has this library loaded before its own.
namespace {

template <typename Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" int remove(const char* path) noexcept {
  if (std::strstr(path, "/errors/") != nullptr) ::sleep(3);
  return next<int(const char*)>("remove")(path);
}

extern "C" int open(const char* path, int flags, ...) {
  if (std::strcmp(path, "slow.txt") == 0) ::sleep(3);
  __builtin_va_list rest;
  __builtin_va_start(rest, flags);
  const int mode = __builtin_va_arg(rest, int);  // read and not used where there is none
  __builtin_va_end(rest);
  return next<int(const char*, int, ...)>("open")(path, flags, mode);
}
