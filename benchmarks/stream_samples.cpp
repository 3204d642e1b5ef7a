// How many samples of a data set in shards are read in a second? benchmarks/peers/mds_samples.py asks Python the same.
//   stream_samples FOLDER WORKERS [SHUFFLE]    prints samples per second of the second epoch; SHUFFLE is 1 (default) or
//   0
#include <chrono>
#include <exception>
#include <iostream>
#include <string>

#include <ATen/core/Tensor.h>

#include "composer/core/error.h"
#include "composer/data/mds/streaming_dataset.h"

using namespace composer;

int main(int argc, char** argv) try {
  if (argc < 3) return 2;
  const data::StreamingDataset dataset({.local = argv[1], .columns = {"tokens"}});
  const auto loader = data::streaming(
      dataset,
      {.batch_size = 64, .shuffle = argc < 4 || argv[3][0] == '1', .seed = 1, .num_workers = std::stoi(argv[2])});
  for (const std::int64_t epoch : {0, 1}) {
    const auto begin = std::chrono::steady_clock::now();
    loader->seek(epoch, 0);
    std::int64_t samples = 0;
    while (const auto batch = loader->next()) samples += batch->at("tokens").size(0);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (samples != dataset.size()) throw Error("an epoch has ", samples, " samples");
    if (epoch == 1) std::cout << static_cast<std::int64_t>(static_cast<double>(samples) / took.count()) << '\n';
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << describe(error) << '\n';
  return 1;
}
