/* stage.c - see stage.h. */
#include "frontend/stage.h"

static void observe(const struct stage *s, struct page_slot *slot, enum page_histogram h)
{
	if (s->began_ns) page_observe(slot, h, (double)s->ns / 1e9);
}

void stages_observe(const struct stages *s, struct page_slot *slot)
{
	observe(&s->parse, slot, HISTOGRAM_parse);
	observe(&s->template, slot, HISTOGRAM_template);
	observe(&s->tokenize, slot, HISTOGRAM_tokenize);
}
