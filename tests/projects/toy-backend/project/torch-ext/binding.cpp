extern "C" int thrice(int x);
extern "C" int six_times(int x) { return 2 * thrice(x); }
