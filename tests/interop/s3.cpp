// Uses a bucket for tests/interop/s3_server.py; the environment names the server and the keys:
//   composer_s3_interop store URI FOLDER   puts, lists, gets and removes files below the URI, with temporary files in
//   FOLDER composer_s3_interop list URI           prints the error or the names composer_s3_interop run URI EPOCHS
//   trains with this save_folder; prints where it resumed, and a hash of the weights
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "composer/core/error.h"
#include "composer/net/remote_store.h"
#include "composer/util/checksum.h"
#include "tests/support/tiny.h"

namespace {

using namespace composer;
namespace fs = std::filesystem;

void require(bool fact, const char* what) {
  if (!fact) throw Error("not so: ", what);
}

std::string content(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void store(const std::string& uri, const fs::path& folder) {
  const auto bucket = net::open_store(uri);
  std::string data((33 << 20) + 5, '\0');  // two parts of 16 MiB and a rest
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 2654435761U >> 13);
  std::ofstream(folder / "long", std::ios::binary) << data;
  std::ofstream(folder / "short", std::ios::binary) << "some text";
  std::ofstream(folder / "empty", std::ios::binary) << "";
  const std::string odd = "sp ace+\xc3\xa9=&'<>~.txt";
  bucket->put(folder / "short", "a/" + odd);
  bucket->put(folder / "long", "a/long");
  bucket->put(folder / "empty", "empty");
  bucket->put(folder / "short", "removed");
  for (const char* name : {"a/"
                           "long",
                           "empty"}) {
    bucket->get(name, folder / "copy");
    require(content(folder / "copy") == content(folder / fs::path(name).filename()), name);
  }
  bucket->get("a/" + odd, folder / "copy");
  require(content(folder / "copy") == "some text", "the file with the odd name is the same");
  require(bucket->size("a/long") == data.size(), "HEAD tells the size");
  require(!bucket->size("none"), "a missing file has no size");
  bucket->remove("removed");
  bucket->remove("removed");
  for (const net::RemoteFile& file : bucket->list()) std::cout << file.name << ' ' << file.size << '\n';
}

void list(const std::string& uri) {
  try {
    for (const net::RemoteFile& file : net::open_store(uri)->list()) std::cout << file.name << '\n';
  } catch (const Error& error) {
    std::cout << "error: " << error.what() << '\n';
  }
}

void run(const std::string& uri, const std::string& epochs) {
  TrainerOptions options = test::tiny_options();
  options.optimizer = optim::sgd({.lr = 0.1, .momentum = 0.9});
  options.save_folder = uri;
  options.save_num_checkpoints_to_keep = 2;
  options.max_duration = Time::parse(epochs);
  Trainer trainer(options);
  trainer.fit();
  const at::Tensor weights = test::weights_of(trainer).contiguous();
  util::Checksum checksum;
  checksum.update(weights.data_ptr(), weights.nbytes());
  std::cout << "from " << trainer.resumed_from() << "\nweights " << checksum.text() << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  try {
    if (what == "store" && argc == 4)
      store(argv[2], argv[3]);
    else if (what == "list" && argc == 3)
      list(argv[2]);
    else if (what == "run" && argc == 4)
      run(argv[2], argv[3]);
    else
      return 2;
  } catch (const std::exception& error) {
    std::cerr << describe(error) << '\n';
    return 1;
  }
}
