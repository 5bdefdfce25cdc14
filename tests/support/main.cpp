// main() of the tests that need no MPI.
#include "run_tests.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  return qft::test::run_all_tests();
}
