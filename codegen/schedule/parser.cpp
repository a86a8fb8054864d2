// The text of print(schedule, true), taken apart.
#include <algorithm>

#include "codegen/kernels/text.h"
#include "codegen/loops/text.h"
#include "codegen/scalar/text_scanner.h"
#include "codegen/schedule/schedule.h"
#include "guards/result.h"

namespace framejit::codegen {

namespace {

class Parser : public TextScanner {
 public:
  using TextScanner::TextScanner;

  Schedule run() {
    expect_word("schedule");
    expect("{");
    expect_word("inputs");
    schedule_.inputs = buffers();
    expect_word("arena");
    schedule_.arena_bytes = expression("\n");
    while (peek() == '%') declaration();
    while (!accept_word("return")) {
      if (accept_word("run")) {
        run_step();
      } else if (accept_word("extern")) {
        call_step();
      } else {
        expect_word("kernel");
        kernel();
      }
    }
    schedule_.outputs = buffers();
    schedule_.places.assign(schedule_.outputs.size(), kNoBuffer);
    while (accept(",")) {
      const BufferId output = buffer();
      expect_word("into");
      const BufferId place = buffer();
      for (size_t i = 0; i < schedule_.outputs.size(); ++i)
        if (schedule_.outputs[i] == output) schedule_.places[i] = place;
    }
    expect("}");
    if (peek() != '\0') fail("text behind the schedule");
    check_buffers();
    return std::move(schedule_);
  }

 private:
  BufferId buffer() {
    expect("%");
    return static_cast<BufferId>(number());
  }
  int number() {
    const int64_t value = integer();
    if (value < 0 || value > static_cast<int64_t>(text_.size()))
      fail("no such number");
    return static_cast<int>(value);
  }
  std::vector<BufferId> buffers() {
    std::vector<BufferId> out;
    for (expect("("); !accept(")"); accept(",")) {
      out.push_back(buffer());
      used_ = std::max(used_, out.back());
    }
    return out;
  }
  std::vector<Expr> expressions() {
    std::vector<Expr> out;
    for (expect("["); !accept("]"); accept(","))
      out.push_back(expression(",]"));
    return out;
  }

  void declaration() {
    const BufferId id = buffer();
    if (schedule_.buffers.size() <= static_cast<size_t>(id)) {
      schedule_.buffers.resize(id + 1);
      schedule_.allocation_of.resize(id + 1, -1);
    }
    Buffer& out = schedule_.buffers[id];
    expect(":");
    const std::string name = word();
    std::optional<DType> type = dtype_named(name);
    if (!type) fail("unknown type " + name);
    out.type = *type;
    out.sizes = expressions();
    out.strides =
        accept_word("strides") ? expressions() : contiguous_strides(out.sizes);
    if (accept_word("alias")) {
      out.alias_of = buffer();
      used_ = std::max(used_, out.alias_of);
      if (accept_word("offset")) out.offset = expression("\n");
    } else {
      schedule_.allocation_of[id] = memory();
    }
  }

  int memory() {
    Allocation allocation;
    if (accept_word("input")) {
      allocation.kind = MemoryKind::kInput;
      allocation.number = number();
    } else if (accept_word("output")) {
      allocation.kind = MemoryKind::kOutput;
      allocation.number = number();
    } else {
      expect_word("arena");
      allocation.offset = expression("\n", " bytes ");
    }
    expect_word("bytes");
    allocation.bytes = expression("\n", " steps ");
    expect_word("steps");
    // Of what no step touches they may be the wrong way round.
    allocation.first = static_cast<int>(integer());
    expect("-");
    allocation.last = static_cast<int>(integer());
    expect_word("memory");
    const int at = number();
    if (schedule_.allocations.size() <= static_cast<size_t>(at))
      schedule_.allocations.resize(at + 1);
    schedule_.allocations[at] = allocation;
    return at;
  }

  void run_step() {
    Step step;
    step.kernel = number();
    step.arguments = buffers();
    expect("->");
    step.results = buffers();
    if (accept_word("over")) step.base = buffer();
    schedule_.steps.push_back(std::move(step));
  }

  void call_step() {
    Definition call;
    parse_call(this, &call);
    Step step;
    step.call = static_cast<int>(schedule_.calls.size());
    step.arguments = call.operands = buffers();
    expect("->");
    step.results = call.results = buffers();
    schedule_.calls.push_back(std::move(call));
    schedule_.steps.push_back(std::move(step));
  }

  // The summary of a kernel says nothing that its text does not say.
  void kernel() {
    const size_t begin = text_.find("\nkernel ", at_);
    const size_t end = text_.find("\n}\n", begin);
    if (begin == std::string::npos || end == std::string::npos)
      fail("a kernel without a body");
    std::string error;
    std::optional<Kernel> parsed =
        parse_kernel(text_.substr(begin + 1, end + 2 - begin), &error);
    if (!parsed) fail("in the kernel that begins here, " + error);
    schedule_.kernels.push_back(std::move(*parsed));
    at_ = end + 3;
  }

  void check_buffers() {
    if (used_ >= static_cast<BufferId>(schedule_.buffers.size()))
      fail("a buffer that is not there");
    for (const Step& step : schedule_.steps)
      if (step.kernel >= static_cast<int>(schedule_.kernels.size()))
        fail("a kernel that is not there");
  }

  Schedule schedule_;
  BufferId used_ = kNoBuffer;
};

}  // namespace

std::optional<Schedule> parse_schedule(const std::string& text,
                                       std::string* error) {
  Parser parser(text);
  try {
    return parser.run();
  } catch (const SyntaxError& e) {
    *error = parser.where() + ": " + e.message;
  } catch (const InternalError& e) {
    *error = parser.where() + ": " + e.message();
  }
  return std::nullopt;
}

}  // namespace framejit::codegen
