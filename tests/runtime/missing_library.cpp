// A library that another one needs, and that is not found beside it.
int smp_missing_library() { return 1; }
