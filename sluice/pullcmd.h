/* pullcmd.h - `sluice pull`: fetches a model from a Hugging Face hub into the cache. */
#ifndef SLUICE_PULLCMD_H
#define SLUICE_PULLCMD_H

int pullcmd_main(int argc, char **argv);

#endif
