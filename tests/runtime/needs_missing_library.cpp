// A module that cannot be loaded where the library it needs is not found.
int smp_missing_library();
extern "C" int smp_needs_missing_library() { return smp_missing_library(); }
