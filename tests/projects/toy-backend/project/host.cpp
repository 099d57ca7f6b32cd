#ifndef TOY_KERNEL
#error compiled for another backend
#endif
extern "C" int twice(int x);
extern "C" int four_times(int x) { return twice(twice(x)); }
