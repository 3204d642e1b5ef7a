// Runs each target of scripts/fuzz once with its corpus and with damaged copies of it, so that none of them stops
// compiling, and what a fuzzer finds soon is found by every run of the tests.
//   fuzz_corpus FOLDER    with a folder for each target
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <string>

using Target = int(const std::uint8_t* data, std::size_t size);
#define TARGET(name) extern "C" Target fuzz_##name;
#include "fuzz_targets.inc"
#undef TARGET

namespace {

constexpr struct {
  const char* name;
  Target* target;
} kTargets[] = {
#define TARGET(name) {#name, fuzz_##name},
#include "fuzz_targets.inc"
#undef TARGET
};
constexpr int kCopies = 300;  // of each input

std::string damaged(std::string bytes, std::mt19937& random) {
  const auto below = [&](std::size_t limit) { return random() % std::max<std::size_t>(limit, 1); };
  for (std::size_t i = 0; i <= below(3) && !bytes.empty(); ++i) {
    const std::size_t at = below(bytes.size());
    switch (below(4)) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes.resize(at);
        break;
      case 2:
        bytes.erase(at, 1 + below(8));
        break;
      default:
        bytes.insert(at, bytes.substr(below(bytes.size()), below(32)));
    }
  }
  return bytes;
}

void run(Target* target, const std::string& bytes) {
  target(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::mt19937 random(7);
  for (const auto& [name, target] : kTargets) {
    int inputs = 0;
    for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(argv[1]) / name)) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string bytes(std::istreambuf_iterator<char>(file), {});
      run(target, bytes);
      for (int i = 0; i < kCopies; ++i) run(target, damaged(bytes, random));
      ++inputs;
    }
    std::cout << name << ": " << inputs << " inputs\n";
    if (inputs == 0) return 1;
  }
}
