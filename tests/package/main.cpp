// A program outside of this project: sees the events of a run and catches the library's errors.
#include <iostream>

#include <composer/core/error.h>
#include <composer/core/event.h>

int main() {
  std::cout << composer::kEventCount << " events, the last is "
            << composer::name(composer::Event{composer::kEventCount - 1}) << '\n';
  try {
    composer::parse_event("NO_EVENT");
  } catch (const composer::ConfigError& error) {
    std::cout << "as it should be, an error: " << error.what() << '\n';
    return 0;
  }
  std::cerr << "NO_EVENT was taken for an event\n";
  return 1;
}
