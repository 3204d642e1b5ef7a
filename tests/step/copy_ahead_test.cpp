#include "composer/step/copy_ahead.h"

#include <set>

#include <ATen/ATen.h>
#include <torch/optim/sgd.h>

#include "composer/core/error.h"
#include "composer/step/feed.h"
#include "tests/support/doctest.h"
#include "tests/support/tiny.h"

namespace composer::test::copy_ahead_test {
namespace {

// What copies do here: the "device" is other memory of the host.
struct Bus {
  int started = 0, waited = 0;
  bool arrived = true;  // what all copies say
};

class HostCopy final : public CopyInFlight {
 public:
  HostCopy(std::shared_ptr<Bus> bus, const Batch& batch) : bus_(std::move(bus)), batch_(batch) {
    ++bus_->started;
    for (auto& [name, tensor] : batch_) tensor = tensor.clone();
  }
  Batch receive() override { return std::move(batch_); }
  bool arrived() const override { return bus_->arrived; }
  void wait() const override { ++bus_->waited; }

 private:
  std::shared_ptr<Bus> bus_;
  Batch batch_;
};

StartCopy copies_over(const std::shared_ptr<Bus>& bus) {
  return [bus](const Batch& batch) { return std::make_unique<HostCopy>(bus, batch); };
}

// Batch b of epoch e holds [e, b]; notes what it was asked for. Batch `bad` is an error.
class Numbers final : public Loader {
 public:
  Numbers(std::int64_t batches, bool says_length, std::int64_t bad = -1)
      : batches_(batches), says_length_(says_length), bad_(bad) {}
  void seek(std::int64_t epoch, std::int64_t batch) override {
    epoch_ = epoch;
    batch_ = batch;
  }
  std::optional<Batch> next() override {
    ++taken;
    if (batch_ >= batches_) return std::nullopt;
    const std::int64_t now = batch_++;
    if (now == bad_) throw DataError("batch ", now, " cannot be read");
    return Batch(at::tensor({epoch_, now}));
  }
  std::optional<std::int64_t> num_batches() const override {
    return says_length_ ? std::optional(batches_) : std::nullopt;
  }
  int taken = 0;

 private:
  std::int64_t batches_, epoch_ = 0, batch_ = 0;
  bool says_length_;
  std::int64_t bad_;
};

struct Ahead {
  explicit Ahead(std::shared_ptr<Numbers> numbers, std::int64_t subset = -1)
      : loader(std::move(numbers)), feed(loader, "train", subset) {
    feed.copy_ahead(copies_over(bus));
  }
  // "e.b", and whether it had been staged and copied; "end".
  std::string step() {
    const int taken = loader->taken;
    const std::optional<Batch> batch = feed.next();
    if (!batch) return "end";
    const at::Tensor numbers = batch->only();
    std::string said = join(numbers[0].item<int>(), ".", numbers[1].item<int>());
    if (loader->taken == taken) said += " staged";
    feed.stage_next();
    return said;
  }
  std::shared_ptr<Bus> bus = std::make_shared<Bus>();
  std::shared_ptr<Numbers> loader;
  Feed feed;
};

TEST_CASE("A staging feed gives the batches in order, each but the first taken before it is wanted") {
  for (const bool says_length : {true, false}) {
    CAPTURE(says_length);
    Ahead ahead(std::make_shared<Numbers>(3, says_length));
    ahead.feed.seek(0, 0);
    CHECK(ahead.step() == "0.0");
    CHECK(ahead.step() == "0.1 staged");
    CHECK(ahead.step() == "0.2 staged");
    CHECK(ahead.step() == "end");
    CHECK(ahead.bus->started == 2);
    ahead.feed.seek(1, 0);
    CHECK(ahead.step() == "1.0");
    CHECK(ahead.step() == "1.1 staged");
  }
}

TEST_CASE("Seeking drops what is staged") {
  Ahead ahead(std::make_shared<Numbers>(9, true));
  ahead.feed.seek(0, 0);
  CHECK(ahead.step() == "0.0");
  ahead.feed.seek(2, 5);
  CHECK(ahead.step() == "2.5");
  CHECK(ahead.step() == "2.6 staged");
  ahead.feed.drop_staged();
  ahead.feed.seek(2, 7);
  CHECK(ahead.step() == "2.7");
}

TEST_CASE("Nothing is taken beyond a subset or the end of an epoch") {
  Ahead subset(std::make_shared<Numbers>(9, true), 2);
  subset.feed.seek(0, 0);
  CHECK(subset.step() == "0.0");
  CHECK(subset.step() == "0.1 staged");
  CHECK(subset.step() == "end");
  CHECK(subset.loader->taken == 2);

  Ahead whole(std::make_shared<Numbers>(2, true));
  whole.feed.seek(0, 0);
  while (whole.step() != "end") {
  }
  CHECK(whole.loader->taken == 2);
}

TEST_CASE("An error of the batch ahead comes when that batch is wanted, and the one after follows it") {
  Ahead ahead(std::make_shared<Numbers>(4, true, /*bad=*/1));
  ahead.feed.seek(0, 0);
  CHECK(ahead.step() == "0.0");
  CHECK_THROWS_WITH_AS(ahead.feed.next(), "batch 1 cannot be read", DataError);
  CHECK(ahead.step() == "0.2");
  CHECK(ahead.step() == "0.3 staged");
}

TEST_CASE("An error of the batch ahead is nobody's if that batch is never wanted") {
  Ahead ahead(std::make_shared<Numbers>(4, true, /*bad=*/1));
  ahead.feed.seek(0, 0);
  CHECK(ahead.step() == "0.0");
  ahead.feed.seek(0, 2);
  CHECK(ahead.step() == "0.2");
}

TEST_CASE("A copy that cannot begin leaves the batch to be copied when it is wanted") {
  CopyAhead copy_ahead([](const Batch&) -> std::unique_ptr<CopyInFlight> { throw Error("no memory"); });
  copy_ahead.put([] { return std::optional(Batch(at::ones(3))); });
  const std::optional<Batch> batch = copy_ahead.take();
  REQUIRE(batch);
  CHECK(batch->only().equal(at::ones(3)));
  CHECK(!copy_ahead.copy_of(batch->only()).defined());
}

TEST_CASE("A feed with batch_transforms stages nothing") {
  const auto loader = std::make_shared<Numbers>(4, true);
  Feed feed(DataSpec{.dataloader = loader, .batch_transforms = [](Batch&) {}}, "train", -1);
  feed.copy_ahead(copies_over(std::make_shared<Bus>()));
  feed.seek(0, 0);
  CHECK(feed.next());
  feed.stage_next();
  CHECK(loader->taken == 1);
}

// A CopyAhead whose current batch is `batch`.
Batch current(CopyAhead& copy_ahead, const Batch& batch) {
  copy_ahead.put([&] { return std::optional(batch); });
  return *copy_ahead.take();
}

TEST_CASE("Each tensor of a staged batch is given its copy once") {
  CopyAhead copy_ahead(copies_over(std::make_shared<Bus>()));
  const Batch batch = current(copy_ahead, tiny_data(4));
  for (const auto& [name, tensor] : batch) {
    const at::Tensor copy = copy_ahead.copy_of(tensor);
    REQUIRE(copy.defined());
    CHECK(copy.equal(tensor));
    CHECK(copy.data_ptr() != tensor.data_ptr());
    CHECK(!copy_ahead.copy_of(tensor).defined());
  }
}

TEST_CASE("Microbatches of a staged batch are rows of its copy") {
  CopyAhead copy_ahead(copies_over(std::make_shared<Bus>()));
  const Batch batch = current(copy_ahead, tiny_data(5));
  std::set<const void*> memory;
  for (const Batch& part : split_batch(batch, 2)) {
    const at::Tensor copy = copy_ahead.copy_of(part["input"]);
    REQUIRE(copy.defined());
    CHECK(copy.equal(part["input"]));
    memory.insert(copy.storage().data());
    CHECK(!copy_ahead.copy_of(part["input"]).defined());
  }
  CHECK(memory.size() == 1);
  CHECK(memory.count(batch["input"].storage().data()) == 0);
}

TEST_CASE("A tensor that is changed, other or of another batch has no copy") {
  CopyAhead copy_ahead(copies_over(std::make_shared<Bus>()));
  const Batch batch = current(copy_ahead, tiny_data(4));
  CHECK(!copy_ahead.copy_of(batch["input"].clone()).defined());
  CHECK(!copy_ahead.copy_of(batch["input"].t()).defined());
  CHECK(!copy_ahead.copy_of(batch["input"].narrow(1, 0, 2)).defined());
  batch["input"].narrow(0, 0, 1).mul_(2);
  CHECK(!copy_ahead.copy_of(batch["input"]).defined());
  at::Tensor target = batch["target"];
  target.add_(1);
  CHECK(!copy_ahead.copy_of(target).defined());

  const Batch next = current(copy_ahead, tiny_data(3));
  CHECK(!copy_ahead.copy_of(batch["input"]).defined());
  CHECK(copy_ahead.copy_of(next["input"]).defined());
}

TEST_CASE("Memory that a copy is still reading is not given to the next batch, and is once it has arrived") {
  for (const bool arrived : {false, true}) {
    CAPTURE(arrived);
    const auto bus = std::make_shared<Bus>();
    bus->arrived = arrived;
    const auto loader = data::in_memory(tiny_data(24), {.batch_size = 2});
    Feed feed(loader, "train", -1);
    feed.copy_ahead(copies_over(bus));
    feed.seek(0, 0);
    std::vector<const void*> memory;
    std::optional<Batch> batch;
    for (int i = 0; i < 12; ++i) {
      feed.forget_batch();
      batch.reset();
      batch = feed.next();
      REQUIRE(batch);
      memory.push_back((*batch)["input"].const_data_ptr());
      feed.stage_next();
    }
    if (arrived) {
      CHECK(std::set(memory.begin(), memory.end()).size() == 2);
      CHECK(bus->waited == 0);
    } else {
      for (std::size_t i = 3; i < memory.size(); ++i) {  // batch 0 was not staged
        CHECK(memory[i] != memory[i - 1]);
        CHECK(memory[i] != memory[i - 2]);
      }
      CHECK(bus->waited > 0);  // what is in flight is bounded
    }
  }
}

TEST_CASE("A feed brings the staged copy of a batch to the device") {
  Batch there;
  Feed feed(std::make_shared<Numbers>(2, true), "train", -1);
  class ToMeta final : public CopyInFlight {
   public:
    explicit ToMeta(Batch batch) : batch_(std::move(batch)) {}
    Batch receive() override { return batch_; }
    bool arrived() const override { return true; }
    void wait() const override {}

   private:
    Batch batch_;
  };
  feed.copy_ahead([&](const Batch& batch) {
    there = Batch(batch.only().to(at::kMeta));
    return std::make_unique<ToMeta>(there);
  });
  feed.seek(0, 0);
  feed.stage_next();
  Batch batch = *feed.next();
  CHECK(batch.only().is_cpu());
  Batch again = batch;
  feed.to_device(batch, at::kMeta);
  CHECK(batch.only().is_same(there.only()));
  feed.to_device(again, at::kMeta);
  CHECK(again.only().is_meta());
  CHECK(!again.only().is_same(there.only()));
}

// Its weights have no values: what a trainer does with them on this device shows only which batches it takes.
class OnMeta final : public Model {
 public:
  OnMeta() { weight_ = register_parameter("weight", at::ones(1, at::kMeta)); }
  Outputs forward(const Batch& batch) override { return batch.only().to(at::kFloat) * weight_; }
  Losses loss(const Outputs& outputs, const Batch&) override { return outputs.only().sum(); }

 private:
  at::Tensor weight_;
};

struct Run {
  std::vector<std::string> batches;  // "e.b"
  int taken = 0;                     // from the loader
  int ends_ahead = 0;                // of batches, with the next one taken already
};

// 3 epochs of 4 batches, or of a subset.
Run run_on_meta(bool copy_ahead, bool evaluates_on_it, std::int64_t subset) {
  const auto loader = std::make_shared<Numbers>(4, true);
  Run run;
  std::vector<std::string>& seen = run.batches;
  TrainerOptions options = tiny_options();
  options.model = std::make_shared<OnMeta>();
  options.device = at::Device(at::kMeta);
  options.optimizer = std::make_shared<torch::optim::SGD>(options.model->parameters(), 0.1);
  options.train_dataloader = loader;
  options.train_subset_num_batches = subset;
  options.max_duration = "3ep";
  options.copy_ahead = copy_ahead;
  if (evaluates_on_it) {
    options.eval_dataloader = loader;
    options.eval_interval = "2ba";
  }
  options.callbacks = {At([&](Event event, const State& state) {
    if (event == Event::BATCH_END && loader->taken > static_cast<int>(seen.size())) ++run.ends_ahead;
    if (event != Event::BATCH_START) return;
    const at::Tensor numbers = state.batch.only();  // still on the host
    seen.push_back(join(numbers[0].item<int>(), ".", numbers[1].item<int>()));
  })};
  Trainer trainer(std::move(options));
  trainer.fit();
  run.taken = loader->taken;
  return run;
}

TEST_CASE("A trainer that looks ahead trains on the same batches") {
  for (const std::int64_t subset : {-1, 3}) {
    CAPTURE(subset);
    const Run plain = run_on_meta(false, false, subset);
    const Run ahead = run_on_meta(true, false, subset);
    CHECK(plain.batches.size() == (subset == 3 ? 9 : 12));
    CHECK(plain.ends_ahead == 0);
    CHECK(ahead.batches == plain.batches);
    CHECK(ahead.taken == plain.taken);
    CHECK(ahead.ends_ahead == (subset == 3 ? 6 : 9));
    CHECK(run_on_meta(true, true, subset).batches == plain.batches);
  }
}

}  // namespace
}  // namespace composer::test::copy_ahead_test
