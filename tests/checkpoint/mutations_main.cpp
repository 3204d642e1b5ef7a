// Damages files of ours in every way it knows and reads them: composer_mutations [TIMES [SEED]]. Fails if one is read
// as if it were whole, or gives another error than CheckpointError.
#include <cstdlib>
#include <iostream>
#include <utility>

#include "tests/checkpoint/mutations.h"

int main(int count, char** arguments) {
  using namespace composer::test;
  const std::size_t times = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 100'000;
  const std::uint64_t seed = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 17;
  bool right = true;
  const std::pair<Format, const char*> formats[] = {{Format::SAFETENSORS, ".safetensors"},
                                                    {Format::PT, ".pt"},
                                                    {Format::MANIFEST, "manifest.json"},
                                                    {Format::CHECKPOINT, "checkpoint"}};
  for (const auto& [format, name] : formats) {
    const Verdicts verdicts = attack(format, times, seed);
    std::cout << name << ": " << times << " damaged files, " << verdicts.refused << " refused, " << verdicts.unchanged
              << " read unchanged, " << verdicts.silent << " read with another content, " << verdicts.other
              << " other errors\n";
    if (!verdicts.first.empty()) std::cout << "  " << verdicts.first << '\n';
    right &= verdicts.silent == 0 && verdicts.other == 0;
  }
  return right ? 0 : 1;
}
