// Prints the events of a run, as a program outside of this project sees them.
#include <composer/core/event.h>

#include <iostream>

int main() {
  for (const composer::Event event : composer::kEvents) std::cout << composer::to_string(event) << '\n';
}
