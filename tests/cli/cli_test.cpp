#include "tests/cli/cli.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <map>

#include <nlohmann/json.hpp>

#include "composer/checkpoint/folder.h"
#include "composer/checkpoint/save_options.h"
#include "composer/checkpoint/saver.h"
#include "composer/core/error.h"
#include "composer/formats/pt_file.h"
#include "composer/formats/safetensors.h"
#include "composer/formats/weights.h"
#include "composer/step/handed_out.h"
#include "composer/util/json.h"
#include "tests/checkpoint/golden.h"
#include "tests/formats/bytes.h"
#include "tests/support/doctest.h"
#include "tests/support/fake_s3.h"

namespace composer::test::cli_test {
namespace {

namespace fs = std::filesystem;

const at::Tensor kWeight = at::arange(6, at::kFloat).view({2, 3});

std::string weights_file(const std::string& path, const formats::NamedTensors& tensors) {
  if (path.ends_with(".pt"))
    formats::save_pt(path, tensors);
  else
    formats::save_safetensors(path, tensors);
  return path;
}

TEST_CASE("composer --help names the subcommands and exit codes, and a wrong subcommand is an error of one line") {
  const Answer help = composer_program({"--help"});
  CHECK(help.code == 0);
  for (const char* word : {"inspect", "verify", "diff", "convert", "torture", "Exit codes"}) CHECK(help.says(word));
  for (const auto& arguments : {std::vector<std::string>{},
                                {"insect"},
                                {"inspect"},
                                {"diff", "a"},
                                {"verify", "/no/such"},
                                {"inspect", "/no/such"},
                                {"convert", "/no/such", "x.pt"},
                                {"diff", "/no/such", "b"}}) {
    const Answer wrong = composer_program(arguments);
    CHECK(wrong.code == 2);
    CHECK_MESSAGE(wrong.is_one_line(), wrong.err);
  }
  CHECK(composer_program({"inspect", "/no/such"}).complains("/no/such"));
}

TEST_CASE("composer names the subcommands there are when one is unknown, and has help and --version") {
  const Answer wrong = composer_program({"inspct", "x"});
  CHECK(wrong.code == 2);
  for (const char* text : {"no subcommand inspct", "inspect, compare, verify, diff, convert, torture"})
    CHECK_MESSAGE(wrong.complains(text), wrong.err);
  CHECK(wrong.is_one_line());
  const Answer version = composer_program({"--version"});
  CHECK(version.code == 0);
  CHECK_MESSAGE(version.says("composer 0."), version.out);
  CHECK(version.says("libtorch 2."));
  const Answer help = composer_program({"help"});
  CHECK(help.code == 0);
  CHECK(help.out == composer_program({"--help"}).out);
  CHECK(composer_program({"help", "verify"}).out == composer_program({"verify", "--help"}).out);
}

TEST_CASE("A file of no known kind is an error, not damage; a file of weights without its content is damage") {
  const CliFolder folder;
  for (const auto& [name, content, code] :
       {std::tuple("run.jsonl", "{\"batch\":1,\"loss\":2}\n", 2), std::tuple("notes.txt", "short", 2),
        std::tuple("empty", "", 2), std::tuple("broken.safetensors", "short", 1)}) {
    CAPTURE(name);
    std::ofstream(folder / name) << content;
    const Answer answer = composer_program({"verify", folder / name});
    CHECK(answer.code == code);
    CHECK(answer.complains("is neither a checkpoint nor a file of weights") == (code == 2));
    CHECK(answer.says("DAMAGED") == (code == 1));
  }
}

TEST_CASE("convert refuses a --rename that fits or changes no name, and writes nothing") {
  const CliFolder folder;
  const std::string in = weights_file(folder / "in.safetensors", {{"fc.weight", kWeight}});
  const Answer wrong =
      composer_program({"convert", in, folder / "out.pt", "--rename", "fc.=head.", "--rename", "foo=bar"});
  CHECK(wrong.code == 2);
  CHECK_MESSAGE(wrong.complains("--rename: no name begins with foo"), wrong.err);
  CHECK_FALSE(fs::exists(folder / "out.pt"));
  for (const char* nothing : {"=", "fc.=fc."}) {
    const Answer same = composer_program({"convert", in, folder / "out.pt", "--rename", nothing});
    CHECK_MESSAGE(same.complains("changes no name"), same.err);
  }
  // one that fits what another has made
  CHECK(composer_program({"convert", in, folder / "out.pt", "--rename", "fc.=a.", "--rename", "a.=b."}).code == 0);
}

TEST_CASE("convert writes the averages of weights if it is asked, and else says that there are some") {
  const CliFolder folder;
  saving::Saver saver({.folder = folder / "ck", .asynchronous = false});
  const at::Tensor trained = at::ones({2, 3}), average = at::full({2, 3}, 0.5), count = at::ones({}, at::kLong);
  StateDict state, averages, ema, algorithms, model;
  model["fc.weight"] = trained, model["norm.count"] = count, model["tied.weight"] = trained;
  averages["fc.weight"] = average;
  ema["averages"] = averages;
  algorithms["EMA"] = ema;
  algorithms["SWA"] = ema;  // its averages are not those that evaluations use
  state["model"] = model, state["algorithms"] = algorithms;
  HandedOut handed_out{.by = "EMA", .at = "algorithms/EMA/averages", .tied = {{"tied.weight", "fc.weight"}}};
  StateVisitor::saving(state)("handed_out", handed_out);
  saving::Manifest manifest;
  manifest.name = "ep1";
  saver.plan(manifest);
  saver.save(manifest, state);
  const auto written = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"convert", folder / "ck/ep1", folder / "out.safetensors", "--force"});
    const Answer answer = composer_program(more);
    CHECK(answer.code == 0);
    CHECK(answer.complains("averages of EMA") == (more.size() == 4));
    std::map<std::string, at::Tensor> by_name;
    for (auto& [name, tensor] : read_weights(folder / "out.safetensors")) by_name[name] = tensor;
    return by_name;
  };
  CHECK(written({}).at("fc.weight").equal(trained));
  const auto of_averages = written({"--averages"});
  CHECK(of_averages.at("fc.weight").equal(average));
  CHECK(of_averages.at("norm.count").equal(count));
  CHECK(of_averages.at("tied.weight").equal(average));
  const Answer wrong = composer_program({"convert", folder / "ck/ep1", folder / "x.pt", "--rename", "nothing.=x."});
  CHECK_FALSE(wrong.complains("are written"));
  state.erase("handed_out");
  handed_out.at = "algorithms/EMA/elsewhere";
  StateVisitor::saving(state)("handed_out", handed_out);
  saver.plan(manifest);
  saver.save(manifest, state);
  CHECK(written({}).at("fc.weight").equal(trained));
  const Answer unknown = composer_program({"convert", folder / "ck/ep1", folder / "x.pt", "--averages"});
  CHECK_MESSAGE(unknown.complains("does not have the averages of EMA by the names of the weights"), unknown.err);
  const std::string file = folder / "out.safetensors";
  const Answer none = composer_program({"convert", file, folder / "x.pt", "--averages"});
  CHECK_MESSAGE(none.complains("has no averages of weights"), none.err);
}

TEST_CASE("inspect shows what a checkpoint holds: time, run, metrics, groups, tensors") {
  const CliFolder folder;
  train_into(folder / "ck");
  const Answer shown = composer_program({"inspect", folder / "ck/latest", "--tensors"});
  CHECK(shown.code == 0);
  for (const char* text : {"tiny", "batch 4", "16 samples", "eval/MulticlassAccuracy", "model", "optimizer", "rng",
                           "f32    [3, 4]", "model/module.weight"})
    CHECK_MESSAGE(shown.says(text), join(text, " is not in ", shown.out));
  std::istringstream lines(shown.out);
  for (std::string line; std::getline(lines, line);) CHECK(line.size() <= 160);

  const Answer stats = composer_program({"inspect", folder / "ck/latest", "--stats"});
  CHECK(stats.says("min"));
  CHECK(stats.says("nan"));

  const Answer list = composer_program({"inspect", folder / "ck"});
  CHECK(list.code == 0);
  CHECK(list.says("ep0-ba2"));
  CHECK(list.says("metrics of the newest"));
}

TEST_CASE("inspect shows the hyperparameters of a run, if the checkpoint has them") {
  const CliFolder folder;
  const auto save = [&](const std::string& name, StateDict state) {
    saving::Saver saver({.folder = folder / "ck", .asynchronous = false});
    StateDict weights;
    weights["w"] = kWeight;
    state["model"] = weights;
    saving::Manifest manifest;
    manifest.name = name;
    saver.plan(manifest);
    saver.save(manifest, state);
    return folder / ("ck/" + name);
  };
  StateDict state, hyperparameters;
  hyperparameters["optimizer/lr"] = 0.125;
  hyperparameters["model"] = std::string("resnet \"18\"\n");
  hyperparameters["tune"] = true;
  hyperparameters["layers"] = std::int64_t{18};
  hyperparameters["limit"] = HUGE_VAL;
  state["hyperparameters"] = hyperparameters;
  const std::string with = save("with", state), without = save("without", {});

  const Answer shown = composer_program({"inspect", with});
  CHECK(shown.code == 0);
  for (const char* line : {"  hyperparameters\n", "    optimizer/lr  0.125\n", "    model         resnet \"18\"",
                           "    tune          true\n", "    layers        18\n", "    limit         inf\n"})
    CHECK_MESSAGE(shown.says(line), join(line, " is not in ", shown.out));
  CHECK_FALSE(shown.says("18\"\n"));  // what would move the cursor
  const Answer json = composer_program({"inspect", with, "--json"});
  for (const char* text : {"\"optimizer/lr\": 0.125", "\"tune\": true", "\"layers\": 18", "\"limit\": \"inf\""})
    CHECK_MESSAGE(json.says(text), join(text, " is not in ", json.out));
  for (const auto& arguments : {std::vector<std::string>{"inspect", without}, {"inspect", without, "--json"}})
    CHECK_FALSE(composer_program(arguments).says("hyperparameters"));
}

TEST_CASE("inspect gives programs JSON, also of numbers that JSON has not") {
  const CliFolder folder;
  const std::string path =
      weights_file(folder / "w.safetensors", {{"a", at::full({2}, HUGE_VAL)}, {"b", at::full({2}, NAN)}});
  const Answer json = composer_program({"inspect", path, "--json", "--stats"});
  CHECK(json.code == 0);
  CHECK(json.says("\"max\": \"inf\""));
  CHECK(json.says("\"nan\": 2"));
  CHECK(json.says("\"kind\": \"safetensors\""));
}

// A run of four batches at this rate, whose save folder is FOLDER/name.
void train_at(double rate, const CliFolder& folder, const std::string& name) {
  TrainerOptions options = tiny_options();
  options.run_name = name;
  options.optimizer = optim::adamw({.lr = rate});
  options.eval_dataloader = tiny_loader(9, 4);
  options.save_folder = folder / name;
  options.save_best = saving::Best{.metric = "eval/CrossEntropy"};
  options.save_num_checkpoints_to_keep = 1;
  options.max_duration = "2ep";
  Trainer(std::move(options)).fit();
}

TEST_CASE("compare shows runs in a table with the hyperparameters that differ and the metrics, and sorts them") {
  const CliFolder folder;
  train_at(0.001, folder, "slow");
  train_at(0.1, folder, "fast");
  const Answer table = composer_program({"compare", folder / "slow", folder / "fast"});
  CHECK(table.code == 0);
  for (const char* text : {"slow", "fast", "0.001", "0.1", "lr", "eval/CrossEntropy"})
    CHECK_MESSAGE(table.says(text), table.out);
  CHECK_FALSE(table.says("save_folder"));
  CHECK_FALSE(table.says("beta1"));
  CHECK(composer_program({"compare", "--all", folder / "slow", folder / "fast"}).says("beta1"));
  const Answer sorted =
      composer_program({"compare", "--sort", "eval/CrossEntropy", "--best", folder / "slow", folder / "fast"});
  CHECK(sorted.code == 0);
  CHECK(sorted.out.find("fast") < sorted.out.find("slow"));
  const auto json =
      util::parse_json<nlohmann::json>(composer_program({"compare", "--json", folder / "slow", folder / "fast"}).out);
  REQUIRE(json.size() == 2);
  CHECK(json[0].at("run_name") == "slow");
  CHECK(json[0].at("batch") == 8);
  CHECK(json[1].at("metrics").contains("eval/CrossEntropy"));
}

TEST_CASE("compare sorts a metric in both directions, NaN and what is missing last, and shows names without controls") {
  const CliFolder folder;
  std::vector<std::string> arguments = {"compare", "--sort", "eval/Score"};
  const auto add = [&](const std::string& name, std::optional<double> score) {
    train_at(0.1, folder, name);
    const saving::Found found = saving::open_checkpoint(std::filesystem::path(folder / name) / "latest");
    saving::Manifest manifest = found.manifest;
    if (score) manifest.metrics["eval/Score"] = *score;
    manifest.metrics["eval/\x1b[31mred"] = 1;
    std::ofstream(found.path / saving::Manifest::kFileName) << manifest.to_json();
    arguments.push_back(folder / name);
  };
  add("undefined", std::nan(""));
  add("middle", 0.5);
  add("absent", std::nullopt);
  add("low", -2);
  add("high", 3);
  const auto order = [&] {
    const Answer answer = composer_program(arguments);
    CHECK_MESSAGE(answer.code == 0, answer.err);
    CHECK(answer.out.find('\x1b') == std::string::npos);
    CHECK(answer.says("[31mred"));
    std::map<std::size_t, std::string> places;
    for (const char* name : {"undefined", "middle", "absent", "low", "high"}) places[answer.out.find(name)] = name;
    std::string all;
    for (const auto& [place, name] : places) all += name + " ";
    return all;
  };
  CHECK(order() == "low middle high undefined absent ");
  arguments.emplace_back("--reverse");
  CHECK(order() == "high middle low undefined absent ");
  CHECK(composer_program({"compare", "--reverse", folder / "low"}).code == 2);
}

TEST_CASE("compare shows the runs that it can read, and says of the others why not") {
  const CliFolder folder;
  train_into(folder / "whole");
  fs::create_directory(folder / "empty");
  const Answer some = composer_program({"compare", folder / "whole", folder / "empty"});
  CHECK(some.code == 1);
  CHECK(some.says("tiny"));
  CHECK(some.is_one_line());
  CHECK(composer_program({"compare", folder / "empty"}).code == 2);
  const Answer best = composer_program({"compare", "--best", folder / "whole"});
  CHECK(best.complains("has no link `best`"));
  const Answer wrong = composer_program({"compare", "--sort", "eval/MAE", folder / "whole"});
  CHECK(wrong.code == 2);
  CHECK_MESSAGE(wrong.complains("no run has this metric; there are eval/CrossEntropy"), wrong.err);
}

TEST_CASE("verify finds a flipped bit in any file of a checkpoint, a missing file and a cut one, and names them") {
  const CliFolder folder;
  train_into(folder / "ck");
  const std::string checkpoint = fs::canonical(folder / "ck/latest");
  CHECK(composer_program({"verify", folder / "ck"}).code == 0);
  CHECK(composer_program({"verify", folder / "ck/latest"}).says("ok"));
  const auto damaged = [&](const std::string& file) {
    const Answer one = composer_program({"verify", checkpoint});
    const Answer all = composer_program({"verify", folder / "ck"});
    CHECK(one.code == 1);
    CHECK(all.code == 1);
    CHECK(all.says("1 whole, 1 damaged"));
    CHECK_MESSAGE(one.says(file), one.out);
    CHECK(one.says("DAMAGED"));
  };
  for (const char* name : {"model.safetensors", "state.safetensors", "manifest.json"}) {
    const std::string file = checkpoint + "/" + name;
    for (const std::streamoff from_end : {5, 40, 200}) {
      flip_byte(file, from_end);
      damaged(name);
      flip_byte(file, from_end);
    }
    CHECK(composer_program({"verify", checkpoint}).code == 0);
  }
  const std::string model = checkpoint + "/model.safetensors";
  flip_byte(model, 5);
  CHECK(composer_program({"verify", checkpoint}).says("module."));  // which tensor
  fs::resize_file(model, fs::file_size(model) - 1);
  damaged("model.safetensors");
  fs::remove(model);
  damaged("model.safetensors");
}

TEST_CASE("verify finds a flipped bit in a checkpoint of an earlier version, too") {
  const CliFolder folder;
  for (const auto& [version, file] : {std::pair("checkpoint-1", "state"), std::pair("checkpoint-2", "state"),
                                      std::pair("checkpoint-3", "state-1-of-2")}) {
    fs::copy(golden_folder() / version, folder / version, fs::copy_options::recursive);
    CHECK(composer_program({"verify", folder / version}).code == 0);
    flip_byte(join(folder / version, '/', file, ".safetensors"), 1);
    CHECK(composer_program({"verify", folder / version}).says("DAMAGED"));
  }
}

TEST_CASE("verify finds a file that belongs to another checkpoint, and a manifest that does not know of the change") {
  const CliFolder folder;
  train_into(folder / "one");
  train_into(folder / "two");
  fs::copy_file(folder / "two/latest/model.safetensors", folder / "one/latest/model.safetensors",
                fs::copy_options::overwrite_existing);
  const Answer answer = composer_program({"verify", folder / "one/latest"});
  CHECK(answer.code == 1);
  CHECK(answer.says("another checkpoint"));
}

TEST_CASE("A forged state, nested too deep or of another form, is an error of one line and no crash") {
  std::string deep, end;
  for (int i = 0; i < 20'000; ++i) deep += "{\"a\":", end += '}';
  struct Row {
    std::string state, text;
  };
  const std::vector<Row> rows = {{deep + "1" + end, "nested more than 100 deep"},
                                 {deep, "nested more than 100 deep"},
                                 {"[1]", "array"},
                                 {"1", "not an object"},
                                 {R"({"a":null})", "null"},
                                 {R"({"a":{"$tensor":"gone"}})", "no tensor called"},
                                 {R"({"a":)", "cannot be read"}};
  for (const Row& row : rows) {
    CAPTURE(row.text);
    const CliFolder folder;
    saving::CheckpointFolder checkpoints(folder.path, "r", saving::real_files());
    saving::Manifest manifest;
    manifest.id = "x", manifest.run_id = "r", manifest.name = "c";
    const auto state = [&](const formats::PlacedSink& sink) {
      return formats::write_safetensors({}, {{"composer.checkpoint", "x"}, {"composer.state", row.state}}, sink);
    };
    checkpoints.write(manifest, {{saving::kStateFile, state}}, "");
    const Answer verified = composer_program({"verify", folder / "c"});
    CHECK(verified.code == 1);
    CHECK(verified.says(row.text));
    const Answer inspected = composer_program({"inspect", folder / "c"});
    CHECK(inspected.code == 2);
    CHECK(inspected.complains(row.text));
    CHECK_THROWS_AS(saving::load(saving::open_checkpoint(folder / "c")), CheckpointError);
  }
}

TEST_CASE("verify says that a folder has no checkpoints, and that a file without checksums has none") {
  const CliFolder folder;
  fs::create_directories(folder / "empty");
  CHECK(composer_program({"verify", folder / "empty"}).code == 1);
  const std::string header = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  std::ofstream file(folder / "plain.safetensors", std::ios::binary);
  const std::uint64_t size = header.size();
  file.write(reinterpret_cast<const char*>(&size), sizeof size) << header << "ab";
  file.close();
  const Answer plain = composer_program({"verify", folder / "plain.safetensors"});
  CHECK(plain.code == 0);
  CHECK(plain.says("no checksums"));
}

TEST_CASE("verify tells what this version cannot read from damage, and skips it on request") {
  const CliFolder folder;
  const auto write = [&](const std::string& name, const std::string& bytes) {
    std::ofstream(folder / name, std::ios::binary) << bytes;
    return folder / name;
  };
  const std::string good = weights_file(folder / "good.pt", {{"fc.weight", kWeight}});
  const std::string legacy = write("legacy.pt", std::string("\x80\x02\x8a\x0al\xfc\x9c\x46\xf9 j\xa8P\x19.", 15));
  const std::string small =
      write("f4.safetensors", safetensors_bytes(R"({"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}})", "x"));
  const std::string foreign = zip_bytes({{"a/data.pkl", std::string("\x80\x02}\x8c\x01tcos\nPath\n)\x81s.", 21)}});
  const std::string other = write("other.pt", foreign);
  const std::string round = write(  // a dict with itself under "self"
      "round.pt", zip_bytes({{"a/data.pkl", std::string("\x80\x02}q\0\x8c\x04selfh\0s.", 15)}}));
  for (const std::string& path : {legacy, small, other, round}) {
    CAPTURE(path);
    const Answer answer = composer_program({"verify", path, good});
    CHECK(answer.code == 2);
    CHECK_MESSAGE(answer.says("NOT READ  " + path), answer.out);
    CHECK(answer.says("1 whole, 0 damaged, 1 not read"));
    CHECK_FALSE(answer.says("DAMAGED"));
  }
  CHECK(composer_program({"verify", small, "--allow-unknown"}).code == 0);
  fs::create_directory(folder / "long");
  write("long/manifest.json", std::string((8 << 20) + 1, ' '));
  const Answer too_long = composer_program({"verify", folder / "long"});
  CHECK(too_long.code == 2);
  CHECK_MESSAGE(too_long.says("NOT READ  "), too_long.out);
  std::string damaged = foreign;
  damaged[damaged.find("Path")] ^= 1;
  const Answer both = composer_program({"verify", write("damaged.pt", damaged), legacy});
  CHECK(both.code == 1);
  CHECK(both.says("0 whole, 1 damaged, 1 not read"));
}

TEST_CASE("inspect lists a .pt file without reading its tensors") {
  const CliFolder folder;
  const std::string file = weights_file(folder / "w.pt", {{"fc.weight", kWeight}});
  std::string bytes = text_of(file);
  const std::string data(static_cast<const char*>(kWeight.const_data_ptr()), kWeight.nbytes());
  bytes[bytes.find(data)] ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  const Answer answer = composer_program({"inspect", file, "--tensors"});
  CHECK(answer.code == 0);
  CHECK_MESSAGE(answer.says("f32"), answer.out);
  CHECK(composer_program({"inspect", file, "--stats"}).code == 2);
}

TEST_CASE("diff of two runs that did the same finds nothing, though their clocks differ") {
  const CliFolder folder;
  train_into(folder / "one");
  train_into(folder / "two");
  const Answer same = composer_program({"diff", folder / "one/latest", folder / "two/latest"});
  CHECK_MESSAGE(same.code == 0, same.out);
  CHECK(composer_program({"diff", folder / "one/latest", folder / "two/latest", "--clocks"}).code == 1);
  const Answer other = composer_program({"diff", folder / "one/latest", folder / "one/ep0-ba2"});
  CHECK(other.code == 1);
  CHECK(other.says("model/module.weight"));
  CHECK(other.says("12 of 12 differ"));
  CHECK(composer_program({"diff", folder / "one/latest", folder / "one/ep0-ba2", "--ignore", "*"}).code == 0);
}

TEST_CASE("diff compares all of the manifest that equal runs have in common, and inspect shows it") {
  const CliFolder folder;
  train_into(folder / "one");
  const fs::path hand = folder / "hand";
  fs::copy(fs::canonical(folder / "one/latest"), hand);
  saving::Manifest manifest = saving::open_checkpoint(hand).manifest;
  manifest.by_hand = true;
  manifest.fit = 7;
  std::ofstream(hand / saving::Manifest::kFileName, std::ios::trunc) << manifest.to_json();
  const Answer answer = composer_program({"diff", folder / "one/latest", hand});
  CHECK(answer.code == 1);
  CHECK(answer.says("manifest/by_hand"));
  CHECK(answer.says("manifest/fit"));
  const Answer shown = composer_program({"inspect", hand});
  CHECK(shown.says("by hand"));
  CHECK_FALSE(composer_program({"inspect", folder / "one/latest"}).says("by hand"));
}

TEST_CASE("diff says what is missing, of another shape or dtype, and by how much values differ") {
  const CliFolder folder;
  at::Tensor changed = kWeight.clone();
  changed[0][0] += 0.5;
  const std::string a =
      weights_file(folder / "a.safetensors",
                   {{"same", kWeight}, {"value", kWeight}, {"shape", kWeight}, {"dtype", kWeight}, {"first", kWeight}});
  const std::string b = weights_file(folder / "b.pt", {{"same", kWeight.clone()},
                                                       {"value", changed},
                                                       {"shape", kWeight.view({3, 2})},
                                                       {"dtype", kWeight.to(at::kHalf)},
                                                       {"second", kWeight.clone()}});
  const Answer answer = composer_program({"diff", a, b});
  CHECK(answer.code == 1);
  for (const char* text : {"1 of 6 differ, max abs 0.5, max rel 1", "shape [2, 3] and [3, 2]", "dtype f32 and f16",
                           "only in the first", "only in the second", "1 of 6 tensors and values are bit-identical"})
    CHECK_MESSAGE(answer.says(text), join(text, " is not in ", answer.out));
  CHECK(composer_program({"diff", a, a}).code == 0);
  CHECK(composer_program({"diff", a, b, "--ignore", "[dfs]*", "--ignore", "value"}).code == 0);
}

TEST_CASE("diff takes two NaNs for equal only if their bits are, and zero and minus zero for different") {
  const CliFolder folder;
  const auto file = [&](const char* name, float value) {
    return weights_file(folder / name, {{"a", at::full({3}, value)}});
  };
  CHECK(composer_program({"diff", file("a.safetensors", NAN), file("b.safetensors", NAN)}).code == 0);
  CHECK(composer_program({"diff", file("c.safetensors", 0.0F), file("d.safetensors", -0.0F)}).code == 1);
  CHECK(composer_program({"diff", file("e.safetensors", 0.0F), file("f.safetensors", NAN)})
            .says("NaN on one side only: 3"));
}

TEST_CASE("convert writes a checkpoint's weights as .pt and back, equal to the bit") {
  const CliFolder folder;
  train_into(folder / "ck");
  CHECK(composer_program({"convert", folder / "ck/latest", folder / "w.pt"}).code == 0);
  CHECK(composer_program({"convert", folder / "w.pt", folder / "w.safetensors"}).code == 0);
  CHECK(composer_program({"diff", folder / "ck/latest", folder / "w.safetensors"}).code == 0);
  const Answer again = composer_program({"convert", folder / "w.pt", folder / "w.safetensors"});
  CHECK(again.code == 2);
  CHECK(again.complains("--force"));
  CHECK(composer_program({"convert", folder / "w.pt", folder / "w.safetensors", "--force"}).code == 0);
  CHECK(composer_program({"convert", folder / "w.pt", folder / "w.onnx"}).code == 2);
  CHECK(composer_program({"convert", folder / "w.pt", folder / "x.pt", "--dtype", "f8"}).complains("bf16, f16 or f32"));
}

TEST_CASE("convert renames, picks and changes the dtype of tensors of floating point alone") {
  const CliFolder folder;
  const std::string in = weights_file(folder / "in.safetensors",
                                      {{"net.a", kWeight}, {"net.count", at::arange(3)}, {"big", at::full({1}, 1e30)}});
  const std::string out = folder / "out.safetensors";
  CHECK(composer_program(
            {"convert", in, out, "--rename", "net.=", "--rename", "a=b", "--dtype", "bf16", "--only", "net.*"})
            .code == 0);
  const formats::SafetensorsFile file(out);
  REQUIRE(file.tensors().size() == 2);
  CHECK(file.read("b").equal(kWeight.to(at::kBFloat16)));
  CHECK((file.read("count").scalar_type() == at::kLong));
  const Answer infinite = composer_program({"convert", in, folder / "half.pt", "--dtype", "f16"});
  CHECK(infinite.code == 0);
  CHECK(infinite.complains("big"));
  const Answer twice = composer_program({"convert", in, folder / "x.pt", "--rename", "net.a=big"});
  CHECK(twice.code == 2);
  CHECK(twice.complains("two tensors get the name big"));
  CHECK_FALSE(fs::exists(folder / "x.pt"));
}

TEST_CASE("no subcommand survives a damaged file with a good exit code, or says more than a line") {
  const CliFolder folder;
  train_into(folder / "ck");
  flip_byte(folder / "ck/latest/model.safetensors", 5);
  for (const auto& arguments : {std::vector<std::string>{"inspect", folder / "ck/latest", "--stats"},
                                {"diff", folder / "ck/latest", folder / "ck/ep0-ba2"},
                                {"convert", folder / "ck/latest", folder / "w.pt"}}) {
    const Answer answer = composer_program(arguments);
    CHECK(answer.code == 2);
    CHECK_MESSAGE(answer.is_one_line(), answer.err);
    CHECK(answer.complains("model.safetensors"));
  }
  CHECK_FALSE(fs::exists(folder / "w.pt"));
}

TEST_CASE("inspect shows the checkpoints, a checkpoint and a file of a bucket by their URIs") {
  const CliFolder folder;
  train_into(folder / "ck");
  FakeS3 server;
  auto variables_of_server = variables_of(server);
  const Variables variables(variables_of_server);
  for (const auto& entry : fs::recursive_directory_iterator(folder.path / "ck")) {
    if (!entry.is_regular_file() || entry.path().filename().string().starts_with('.')) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    server.set("runs/" + entry.path().lexically_relative(folder.path / "ck").generic_string(),
               {std::istreambuf_iterator<char>(file), {}});
  }
  const Answer list = composer_program({"inspect", "s3://b/runs"});
  CHECK_MESSAGE(list.code == 0, list.err);
  CHECK(list.out.starts_with("s3://b/runs\n"));
  for (const char* text : {"ep0-ba2", "ep0-ba4", "metrics of the newest"}) CHECK_MESSAGE(list.says(text), list.out);
  const Answer one = composer_program({"inspect", "s3://b/runs/ep0-ba2"});
  CHECK_MESSAGE(one.code == 0, one.err);
  CHECK(one.out.starts_with("s3://b/runs/ep0-ba2\n"));
  CHECK(one.says("epoch 0, batch 2"));
  CHECK(composer_program({"inspect", "s3://b/runs/ep0-ba2/model.safetensors", "--json"})
            .says("\"kind\": \"safetensors\""));
  const Answer none = composer_program({"inspect", "s3://b/none"});
  CHECK(none.code == 2);
  CHECK(none.complains("s3://b/none: is neither a checkpoint"));
  server.set("runs/ep0-ba2/manifest.json", "{");
  const Answer damaged = composer_program({"inspect", "s3://b/runs"});
  CHECK(damaged.code == 1);
  CHECK(damaged.complains("ep0-ba2"));
}

}  // namespace
}  // namespace composer::test::cli_test
