// The micro-ops that are not captured, one row each, and why.
#include "bytecode/interpreter/handlers.h"

namespace framejit::bytecode {

#define FJ_BREAK_ROWS(X)                                   \
  X(ImportStar, UnsupportedOpcode, "import *")             \
  X(PrintExpr, UnsupportedOpcode, "interactive statement") \
  X(CheckEgMatch, UnsupportedException, "except*")         \
  X(PrepReraiseStar, UnsupportedException, "except*")      \
  X(GetAwaitable, GeneratorFrame, "await")                 \
  X(GetAiter, GeneratorFrame, "async for")                 \
  X(GetAnext, GeneratorFrame, "async for")                 \
  X(EndAsyncFor, GeneratorFrame, "async for")              \
  X(BeforeAsyncWith, GeneratorFrame, "async with")         \
  X(AsyncGenWrap, GeneratorFrame, "async generator")

#define X(name, reason, detail) \
  FJ_HANDLER(name) { return interp.make_break(BreakReason::k##reason, detail); }
FJ_BREAK_ROWS(X)
#undef X

}  // namespace framejit::bytecode
