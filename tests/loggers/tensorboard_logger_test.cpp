#include "composer/loggers/tensorboard_logger.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <png.h>
#include <thread>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/core/state_dict.h"
#include "tests/loggers/event_reader.h"
#include "tests/support/doctest.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/folder.h"
#include "tests/support/saved_by.h"
#include "tests/support/warnings.h"

namespace composer::loggers::tensorboard_logger_test {
namespace {

namespace fs = std::filesystem;
using test::EventFile;
using test::Message;
using test::saved_by;
using test::TensorBoardValue;

struct Run {
  explicit Run(TensorBoardLoggerOptions options) : board(std::move(options)) { state.run_name = "r"; }
  explicit Run(const fs::path& folder) : Run(TensorBoardLoggerOptions{.folder = folder.string()}) {}
  void init() { board.init(state, logger); }
  void close() { board.close(state, logger); }
  State state;
  TensorBoardLogger board;
  Logger logger{state, {&board}};
};

EventFile only_file(const fs::path& folder) {
  const auto files = test::event_files(folder);
  REQUIRE(files.size() == 1);
  return test::read_events(files[0]);
}

TEST_CASE("The test's reader of event files rejects a changed byte and a file that is cut off") {
  const test::Folder folder;
  Run run(folder.path());
  run.logger.log_metrics({{"a", 1.0}});
  run.close();
  const fs::path file = test::event_files(folder.path())[0];
  CHECK_NOTHROW(test::read_events(file));
  fs::resize_file(file, fs::file_size(file) - 1);
  CHECK_THROWS(test::read_events(file));
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(20).put('!');
  CHECK_THROWS(test::read_events(file));
  CHECK(test::slow_crc32c("123456789") == 0xE3069283);
}

TEST_CASE("TensorBoardLogger writes metrics as single-precision scalars of rank 0, with their kind at the first") {
  const test::Folder folder;
  Run run(folder / "a/b");
  const double infinity = std::numeric_limits<double>::infinity();
  run.logger.log_metrics({{"loss/train", at::full({}, 0.25)}, {"count", std::int64_t{7}}, {"on", true}}, 3);
  run.logger.log_metrics({{"loss/train", std::nan("")}, {"count", -infinity}}, 400);
  run.board.flush();
  run.close();
  const EventFile file = only_file(folder / "a/b");
  CHECK(file.version == "brain.Event:2");
  CHECK(file.steps("loss/train") == std::vector<std::int64_t>{3, 400});
  std::vector<const TensorBoardValue*> losses;
  for (const TensorBoardValue& value : file.values)
    if (value.tag == "loss/train") losses.push_back(&value);
  const TensorBoardValue& first = *losses[0];
  CHECK(first.plugin == "scalars");
  CHECK(first.data_class == 1);
  CHECK(first.type == 1);
  CHECK(first.has_shape);
  CHECK(first.shape.empty());
  CHECK(first.single == 0.25);
  CHECK(first.wall_time > 1.7e9);
  CHECK_FALSE(losses[1]->has_metadata);
  CHECK(std::isnan(losses[1]->single));
  CHECK(file.only("on").single == 1);
}

TEST_CASE("TensorBoardLogger with simple_values writes metrics as torch.utils.tensorboard does") {
  const test::Folder folder;
  Run run(TensorBoardLoggerOptions{.folder = folder.path().string(), .simple_values = true});
  run.logger.log_metrics({{"a", 0.5}}, 2);
  run.close();
  const TensorBoardValue value = only_file(folder.path()).only("a");
  CHECK(value.is_simple);
  CHECK(value.simple == 0.5);
  CHECK(value.step == 2);
  CHECK_FALSE(value.has_metadata);
}

TEST_CASE("What is not UTF-8 is replaced in an event file, which readers could not read on from there otherwise") {
  const test::Folder folder;
  Run run(folder.path());
  run.logger.log_hyperparameters({{"h\xff", std::string("v\xff")}});
  run.logger.log_metrics({{"a\xff", 1.0}, {"note", std::string("\xfe")}});
  run.logger.log_images("i\xff", {.images = at::ones({2, 3}), .masks = {{"m\xff", at::ones({2, 3}, at::kLong)}}});
  run.close();
  const EventFile file = only_file(folder.path());
  CHECK(file.only("a\uFFFD").type == 1);
  CHECK(file.only("note").strings == std::vector<std::string>{"\uFFFD"});
  CHECK(file.only("i\uFFFD/masks/m\uFFFD").plugin == "images");
}

TEST_CASE("TensorBoardLogger writes texts and tables as Markdown") {
  const test::Folder folder;
  Run run(folder.path());
  run.logger.log_metrics({{"note", std::string("**bold**")}});
  run.logger.log_table("t", {{"a|b", "c"}, {{std::string("x\ny"), 1.5}, {true, at::full({}, 2)}}}, 5);
  run.close();
  const EventFile file = only_file(folder.path());
  CHECK(file.only("note").strings == std::vector<std::string>{"**bold**"});
  CHECK(file.only("note").plugin == "text");
  CHECK(file.only("note").data_class == 2);
  CHECK(file.only("note").type == 7);
  CHECK(file.only("t").strings[0] == "| a\\|b | c |\n|---|---|\n| x<br>y | 1.5000 |\n| True | 2 |\n");
  CHECK(file.only("t").step == 5);
}

TEST_CASE("TensorBoardLogger writes histograms as rows of left, right and count") {
  const test::Folder folder;
  Run run(folder.path());
  run.logger.log_histogram("h", LogHistogram::of({5, 0.5}, {0, 1, 3}), 2);
  run.logger.log_histogram("weights", LogHistogram::of(at::arange(100), 4));
  run.close();
  const EventFile file = only_file(folder.path());
  const TensorBoardValue value = file.only("h");
  CHECK(value.plugin == "histograms");
  CHECK(value.data_class == 2);
  CHECK(value.type == 2);
  CHECK(value.shape == std::vector<std::int64_t>{2, 3});
  CHECK(value.doubles() == std::vector<double>{0, 1, 5, 1, 3, 0.5});
  CHECK(file.only("weights").doubles()[2] == 25);
}

// Red, green, blue and alpha of each pixel.
std::vector<int> pixels_of(const std::string& png) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  REQUIRE(png_image_begin_read_from_memory(&image, png.data(), png.size()) != 0);
  image.format = PNG_FORMAT_RGBA;
  std::vector<png_byte> bytes(PNG_IMAGE_SIZE(image));
  REQUIRE(png_image_finish_read(&image, nullptr, bytes.data(), 0, nullptr) != 0);
  return {bytes.begin(), bytes.end()};
}

TEST_CASE("TensorBoardLogger writes images of every shape and type as the PNG files of their pixels") {
  const float nan = std::nanf("");
  const at::Tensor gray = at::tensor({0.0F, 0.5F, 1.0F, 2.0F, -1.0F, nan}).view({2, 3});
  const std::vector<int> grays = {0, 128, 255, 255, 0, 0};
  struct Row {
    const char* what;
    LogImages images;
    std::vector<int> first;  // of the first pixels
    std::size_t count;
  };
  const at::Tensor colors = at::arange(24, at::kByte).view({2, 3, 2, 2});
  const auto rgba = at::arange(16, at::kByte).view({4, 2, 2});
  for (const Row& row :
       {Row{"[H, W]", {.images = gray}, {0, 0, 0, 255, 128, 128, 128, 255, 255, 255, 255, 255}, 1},
        Row{"[C, H, W]", {.images = gray.unsqueeze(0)}, {0, 0, 0, 255, 128, 128, 128, 255}, 1},
        Row{"half", {.images = gray.to(at::kHalf)}, {0, 0, 0, 255, 128, 128, 128, 255}, 1},
        Row{"[N, C, H, W]", {.images = colors}, {0, 4, 8, 255, 1, 5, 9, 255}, 2},
        Row{"[N, H, W, C]", {.images = colors.movedim(1, 3), .channels_last = true}, {0, 4, 8, 255, 1, 5, 9, 255}, 2},
        Row{"RGBA", {.images = rgba}, {0, 4, 8, 12, 1, 5, 9, 13}, 1}}) {
    CAPTURE(row.what);
    const test::Folder folder;
    Run run(folder.path());
    run.logger.log_images("i", row.images, 1);
    run.close();
    const TensorBoardValue value = only_file(folder.path()).only("i");
    CHECK(value.plugin == "images");
    CHECK(value.data_class == 3);
    REQUIRE(value.strings.size() == 2 + row.count);
    const auto width = row.images.channels_last ? 2 : row.images.images.size(-1);
    CHECK(value.strings[0] == std::to_string(width));
    CHECK(value.strings[1] == "2");
    CHECK(value.shape == std::vector<std::int64_t>{static_cast<std::int64_t>(value.strings.size())});
    std::vector<int> pixels = pixels_of(value.strings[2]);
    CHECK(pixels.size() == static_cast<std::size_t>(width) * 2 * 4);
    pixels.resize(row.first.size());
    CHECK(pixels == row.first);
  }
}

TEST_CASE(
    "TensorBoardLogger writes masks as images, the names of classes as their description, and max_images at most") {
  const test::Folder folder;
  Run run(TensorBoardLoggerOptions{.folder = folder.path().string(), .max_images = 2});
  run.logger.log_images("i", {.images = at::zeros({5, 1, 2, 2}),
                              .masks = {{"truth", at::tensor({0, 1, 2, 0}).view({1, 2, 2}).expand({5, 2, 2})}},
                              .class_labels = {{0, "sky"}, {1, "sea"}}});
  run.close();
  const EventFile file = only_file(folder.path());
  CHECK(file.only("i").strings.size() == 4);
  const TensorBoardValue mask = file.only("i/masks/truth");
  CHECK(mask.description == "0: sky, 1: sea");
  const std::vector<int> pixels = pixels_of(mask.strings[2]);
  const auto pixel = [&](int i) { return std::vector<int>(pixels.begin() + 4 * i, pixels.begin() + 4 * (i + 1)); };
  CHECK(pixel(0) == pixel(3));
  CHECK(pixel(0) != pixel(1));
  CHECK(pixel(1) != pixel(2));
}

TEST_CASE("Classes of masks below 0 and above 19 have the colors of those 20 apart") {
  const test::Folder folder;
  Run run(folder.path());
  const at::Tensor classes = at::tensor({-1, 19, 20, 0}, at::kLong).view({2, 2});
  run.logger.log_images("i", {.images = at::zeros({2, 2}), .masks = {{"m", classes}}});
  run.close();
  const std::vector<int> pixels = pixels_of(only_file(folder.path()).only("i/masks/m").strings[2]);
  const auto pixel = [&](int i) { return std::vector<int>(pixels.begin() + 4 * i, pixels.begin() + 4 * (i + 1)); };
  CHECK(pixel(0) == pixel(1));
  CHECK(pixel(2) == pixel(3));
  CHECK(pixel(0) != pixel(2));
}

TEST_CASE("TensorBoardLogger writes hyperparameters as one session, which fails unless the fit ends") {
  for (const bool ends : {true, false}) {
    const test::Folder folder;
    Run run(folder.path());
    run.init();
    run.logger.log_hyperparameters({{"lr", 0.5}, {"bn", true}});
    run.board.fit_start(run.state, run.logger);
    run.logger.log_hyperparameters({{"optimizer", std::string("adam")}, {"depth", std::int64_t{20}}});
    run.logger.log_metrics({{"a", 1.0}});
    run.logger.log_hyperparameters({{"late", 3.0}});
    if (ends) run.board.fit_end(run.state, run.logger);
    run.close();
    const EventFile file = only_file(folder.path());
    const TensorBoardValue start = file.only("_hparams_/session_start_info");
    CHECK(start.plugin == "hparams");
    CHECK(start.shape == std::vector<std::int64_t>{0});
    const std::string session = Message(start.content).text(3);
    CHECK(Message(session).text(4) == "r");
    std::map<std::string, std::string> values;
    for (const auto& entry : Message(session).all(1))
      values[Message(entry.bytes).text(1)] = Message(entry.bytes).text(2);
    REQUIRE(values.size() == 4);
    CHECK(Message(values["lr"]).number(2) == 0.5);
    CHECK(Message(values["depth"]).number(2) == 20);
    CHECK(Message(values["bn"]).whole(4) == 1);
    CHECK(Message(values["optimizer"]).text(3) == "adam");
    CHECK(file.only("hyperparameters/late").strings == std::vector<std::string>{"3.0000"});
    const std::string end = Message(file.only("_hparams_/session_end_info").content).text(4);
    CHECK(Message(end).whole(1) == (ends ? 1 : 2));
  }
}

TEST_CASE("TensorBoardLogger writes one file for each process, and each run of a logger, and none for other ranks") {
  const test::Folder folder;
  Run run(folder / "{run_name}");
  run.init();
  CHECK(test::event_files(folder / "r").size() == 1);
  run.close();
  run.init();
  run.close();
  CHECK(test::event_files(folder / "r").size() == 2);
  run.state.rank = 1;
  run.init();
  run.logger.log_metrics({{"a", 1.0}});
  run.board.flush();
  run.close();
  CHECK(test::event_files(folder / "r").size() == 2);
}

TEST_CASE("What TensorBoardLogger has flushed can be read while it goes on") {
  const test::Folder folder;
  Run run(folder.path());
  for (std::int64_t i = 0; i < 3; ++i) {
    run.logger.log_metrics({{"a", i}}, i);
    run.board.flush();
    CHECK(only_file(folder.path()).steps("a").size() == static_cast<std::size_t>(i) + 1);
  }
}

TEST_CASE("TensorBoardLogger of a resumed run cuts off what followed the checkpoint, once it trains, in the old file") {
  for (const bool trains : {true, false}) {
    for (const bool replaced : {false, true}) {
      const test::Folder folder;
      Run killed(folder / "a");
      killed.logger.log_metrics({{"a", 1.0}}, 1);
      StateDict checkpoint = saved_by(killed.board);
      killed.logger.log_metrics({{"a", 2.0}}, 2);
      killed.board.flush();
      const fs::path old = test::event_files(folder / "a")[0];
      fs::create_directory(folder / "b");  // moved
      fs::copy(old, folder / "b" / old.filename().string());
      if (replaced) std::ofstream(folder / "b" / old.filename().string()) << std::string(1000, 'x');
      const auto size = fs::file_size(folder / "b" / old.filename().string());
      {
        Run resumed(folder / "b");
        resumed.state.resumes = true;
        resumed.init();
        StateVisitor visit = StateVisitor::loading(checkpoint, "ck");
        resumed.board.visit_state(visit);
        if (trains) resumed.board.fit_start(resumed.state, resumed.logger);
        resumed.logger.log_metrics({{"a", 2.5}}, 2);
        const test::Warnings warnings;
        resumed.close();
        CHECK(warnings.say("records are not written") == !trains);
      }
      CHECK(test::event_files(folder / "b").size() == (trains ? 2 : 1));
      if (trains && !replaced)
        CHECK(test::read_events(folder / "b" / old.filename().string()).steps("a") == std::vector<std::int64_t>{1});
      else
        CHECK(fs::file_size(folder / "b" / old.filename().string()) == size);
    }
  }
}

TEST_CASE("An event file that was cut or removed since the checkpoint is told, and what it lacked before is counted") {
  for (const bool removed : {true, false}) {
    CAPTURE(removed);
    const test::Folder folder;
    const test::Warnings warnings;
    StateDict checkpoint;
    {
      Run run(folder.path());
      run.logger.log_metrics({{"a", 1.0}}, 1);
      run.board.flush();
      {
        const test::FileSizeLimit limit(fs::file_size(test::event_files(folder.path())[0]));
        run.logger.log_metrics({{"a", 2.0}}, 2);
        run.board.flush();
      }
      checkpoint = saved_by(run.board);
      run.close();
    }
    const fs::path old = test::event_files(folder.path())[0];
    removed ? static_cast<void>(fs::remove(old)) : fs::resize_file(old, fs::file_size(old) / 3);
    Run resumed(folder.path());
    resumed.state.resumes = true;
    resumed.init();
    StateVisitor visit = StateVisitor::loading(checkpoint, "ck");
    resumed.board.visit_state(visit);
    const auto before = warnings.texts.size();
    resumed.board.fit_start(resumed.state, resumed.logger);
    CHECK(warnings.texts.size() == before + 1);
    CHECK(warnings.say(old.string() + (removed ? " does not exist any more" : " is shorter than")));
    resumed.close();
    CHECK(warnings.texts.back().find("1 records could not be written") != std::string::npos);
  }
}

TEST_CASE("Event files that processes of the run began after the checkpoint are removed, and those of others stay") {
  const test::Folder folder;
  const auto board = folder / "a";
  Run killed(board), other(board);
  other.state.run_name = "other";
  killed.logger.log_metrics({{"a", 1.0}}, 1);
  StateDict checkpoint = saved_by(killed.board);
  other.logger.log_metrics({{"b", 1.0}}, 1);
  for (Run* run : {&killed, &other}) run->close();
  for (int i = 0; i < 2; ++i) {  // killed before they wrote a checkpoint
    Run again(board);
    again.logger.log_metrics({{"a", 2.0}}, 2);
    again.close();
  }
  REQUIRE(test::event_files(board).size() == 4);
  Run resumed(board);
  resumed.state.resumes = true;
  resumed.init();
  StateVisitor visit = StateVisitor::loading(checkpoint, "ck");
  resumed.board.visit_state(visit);
  resumed.board.fit_start(resumed.state, resumed.logger);
  resumed.logger.log_metrics({{"a", 2.5}}, 2);
  resumed.close();
  std::vector<std::int64_t> steps;
  for (const fs::path& file : test::event_files(board))
    for (const std::int64_t step : test::read_events(file).steps("a")) steps.push_back(step);
  CHECK(steps == std::vector<std::int64_t>{1, 2});
  CHECK(test::event_files(board).size() == 3);
}

TEST_CASE("Event files are read in the order in which they were begun, also if the clock was set back") {
  const test::Folder folder;
  const std::string future = "events.out.tfevents.33333333333.host.1.0";
  std::ofstream(folder / future);
  Run run(folder.path());
  run.init();
  run.close();
  const auto files = test::event_files(folder.path());
  REQUIRE(files.size() == 2);
  CHECK(files[0].filename() == future);
}

TEST_CASE("TensorBoardLogger hands its file to other loggers when an epoch and a fit end, if asked to") {
  struct Files final : LoggerDestination {
    void upload_file(const LogFile& file, const State&) override { files.push_back(file); }
    std::vector<LogFile> files;
  };
  for (const bool upload : {false, true}) {
    const test::Folder folder;
    State state;
    state.run_name = std::string("r");
    TensorBoardLogger board({.folder = (folder / "b").string(), .upload = upload});
    Files files;
    Logger logger(state, {&board, &files});
    board.init(state, logger);
    board.fit_start(state, logger);
    std::uintmax_t size = 0;
    for (const bool at_end : {false, true}) {
      logger.log_metrics({{"a", 1.0}}, 1);
      at_end ? board.fit_end(state, logger) : board.epoch_end(state, logger);
      if (!upload) continue;
      REQUIRE(!files.files.empty());
      const LogFile& last = files.files.back();
      CHECK(last.name.starts_with("tensorboard/r/events.out.tfevents."));
      CHECK(last.overwrite);
      CHECK(std::filesystem::file_size(last.path) > size);  // it has what was logged until now
      size = std::filesystem::file_size(last.path);
    }
    CHECK(files.files.size() == (upload ? 2 : 0));
    board.close(state, logger);
  }
}

TEST_CASE("TensorBoardLogger does not cut a file outside of its folder that a forged checkpoint names") {
  const test::Folder folder;
  Run killed(folder / "a");
  killed.logger.log_metrics({{"a", 1.0}}, 1);
  StateDict checkpoint = saved_by(killed.board);
  killed.logger.log_metrics({{"a", 2.0}}, 2);
  killed.close();
  const fs::path file = test::event_files(folder / "a")[0];
  const auto size = fs::file_size(file);
  checkpoint["file"] = "../a/" + file.filename().string();
  Run resumed(folder / "b");
  resumed.state.resumes = true;
  resumed.init();
  StateVisitor visit = StateVisitor::loading(checkpoint, "ck");
  resumed.board.visit_state(visit);
  resumed.board.fit_start(resumed.state, resumed.logger);
  CHECK(fs::file_size(file) == size);
}

TEST_CASE("TensorBoardLogger keeps whole events alone on a full disk, continues later, and says what is missing") {
  const test::Folder folder;
  const test::Warnings warnings;
  Run run(folder.path());
  run.logger.log_metrics({{"a", 1.0}}, 1);
  run.board.flush();
  {
    const test::FileSizeLimit limit(fs::file_size(test::event_files(folder.path())[0]) + 10);
    run.logger.log_metrics({{"a", 2.0}, {"b", 2.0}}, 2);
    run.logger.log_metrics({{"a", 3.0}}, 3);
    run.board.flush();
  }
  run.logger.log_metrics({{"a", 4.0}, {"b", 4.0}}, 4);
  run.close();
  const EventFile file = only_file(folder.path());
  CHECK(file.steps("a") == std::vector<std::int64_t>{1, 4});
  CHECK(file.only("b").has_metadata);
  CHECK(warnings.say("training continues, and records are dropped"));
  CHECK(warnings.say("2 records could not be written and are missing in"));
}

TEST_CASE("TensorBoardLogger begins a new file when its own is removed, and says what is missing") {
  const test::Folder folder;
  const test::Warnings warnings;
  Run run(folder.path());
  run.logger.log_hyperparameters({{"lr", 0.5}});
  run.logger.log_metrics({{"a", 1.0}}, 1);
  run.board.flush();
  fs::remove_all(folder.path());
  run.logger.log_metrics({{"a", 2.0}}, 2);
  run.close();
  const EventFile file = only_file(folder.path());
  CHECK(file.version == "brain.Event:2");
  CHECK(file.only("a").has_metadata);
  CHECK(file.only("_hparams_/session_start_info").has_metadata);
  CHECK(warnings.say("was removed"));
  CHECK(warnings.say("2 records could not be written"));
}

TEST_CASE("TensorBoardLogger rejects bad options, and at INIT a folder that cannot be written") {
  CHECK_THROWS_AS(TensorBoardLogger({.folder = ""}), ConfigError);
  CHECK_THROWS_AS(TensorBoardLogger({.folder = "{rank}"}), ConfigError);
  CHECK_THROWS_AS(TensorBoardLogger({.folder = "a", .max_images = 0}), ConfigError);
  CHECK_THROWS_AS(TensorBoardLogger({.folder = "a", .flush_interval = Seconds(-1)}), ConfigError);
  const test::Folder folder;
  std::ofstream(folder / "file") << "x";
  Run run(folder / "file");
  CHECK_THROWS_AS(run.init(), ConfigError);
  Run nameless(folder / "{run_name}");
  nameless.state.run_name = "";
  CHECK_THROWS_WITH_AS(nameless.init(), doctest::Contains("requires a run_name"), ConfigError);
}

}  // namespace
}  // namespace composer::loggers::tensorboard_logger_test
